#include "fovea/attention/masks.h"

#include "attention/mask_parts.h"
#include "fovea/attention/spec.h"

namespace fovea {
namespace {

using namespace mask_parts;

class PrefixNode final : public MaskNode {
 public:
  explicit PrefixNode(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {
    if (lengths_.empty()) refuse("Prefix", "lengths", "one length, or one a batch entry", "none");
    for (const std::int64_t length : lengths_) at_least("Prefix", "lengths", length, 0);
  }
  bool allows(const Site& site, const QueryBlock&) const override {
    return site.key < length(site.batch) || site.key <= site.query;
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const std::int64_t prefix = length(block.batch);
    return {span_within(0, std::max(prefix, block.query_end), block.key_len),
            span_within(0, std::max(prefix, block.query_begin + 1), block.key_len)};
  }
  std::string print(int) const override { return "prefix(" + list_of(lengths_) + ")"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape& shape) const override {
    if (lengths_.size() > 1 && static_cast<std::int64_t>(lengths_.size()) != shape.batch)
      refuse("make_plan", "spec.mask",
             "one length, or as many as batch entries, " + std::to_string(shape.batch), print(0));
  }

 private:
  std::int64_t length(std::int64_t batch) const {
    return lengths_[lengths_.size() == 1 ? 0 : static_cast<std::size_t>(batch)];
  }
  std::vector<std::int64_t> lengths_;
};

class DocumentsNode final : public MaskNode {
 public:
  explicit DocumentsNode(std::vector<std::int64_t> boundaries) : boundaries_(std::move(boundaries)) {
    for (std::size_t i = 0; i < boundaries_.size(); ++i)
      at_least("Documents", "boundaries, which may not fall", boundaries_[i],
               i == 0 ? 0 : boundaries_[i - 1]);
  }
  bool allows(const Site& site, const QueryBlock&) const override {
    const KeySpan document = document_of(site.query);
    return site.key >= document.begin && site.key < document.end;
  }
  BlockSpans spans(const QueryBlock& block) const override {
    if (boundaries_.empty()) return {};
    const std::int64_t first = std::max(block.query_begin, boundaries_.front()),
                       last = std::min(block.query_end, boundaries_.back()) - 1;
    if (first > last) return {};
    const KeySpan begin = document_of(first), end = document_of(last);
    const bool one = begin == end && first == block.query_begin && last == block.query_end - 1;
    return {span_within(begin.begin, end.end, block.key_len),
            one ? span_within(begin.begin, begin.end, block.key_len) : KeySpans{}};
  }
  std::string print(int) const override { return "documents(" + list_of(boundaries_) + ")"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}

 private:
  KeySpan document_of(std::int64_t position) const {
    const auto end = std::upper_bound(boundaries_.begin(), boundaries_.end(), position);
    if (end == boundaries_.begin() || end == boundaries_.end()) return {};
    return {*(end - 1), *end};
  }
  std::vector<std::int64_t> boundaries_;
};

class ChunkedNode final : public MaskNode {
 public:
  explicit ChunkedNode(std::int64_t size) : size_(size) { at_least("Chunked", "size", size, 1); }
  bool allows(const Site& site, const QueryBlock&) const override {
    return floor_div(site.query, size_) == floor_div(site.key, size_);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const std::int64_t first = floor_div(block.query_begin, size_),
                       last = floor_div(block.query_end - 1, size_);
    const KeySpans some = span_within(first * size_, last * size_ + size_, block.key_len);
    return {some, first == last ? some : KeySpans{}};
  }
  std::string print(int) const override { return "chunked(" + std::to_string(size_) + ")"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}

 private:
  std::int64_t size_;
};

class StridedNode final : public MaskNode {
 public:
  explicit StridedNode(std::int64_t stride) : stride_(stride) { at_least("Strided", "stride", stride, 1); }
  bool allows(const Site& site, const QueryBlock&) const override {
    return (site.query - site.key) % stride_ == 0;
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const std::int64_t rows = block.query_end - block.query_begin;
    const KeySpans whole = span_within(0, block.key_len, block.key_len);
    if (rows >= stride_) return {whole, stride_ == 1 ? whole : KeySpans{}};
    KeySpans some;
    const std::int64_t residue = block.query_begin - floor_div(block.query_begin, stride_) * stride_;
    for (std::int64_t begin = residue - stride_; begin < block.key_len; begin += stride_)
      append(some, begin, begin + rows, block.key_len);
    return {some, rows == 1 ? some : KeySpans{}};
  }
  std::string print(int) const override { return "strided(" + std::to_string(stride_) + ")"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}

 private:
  std::int64_t stride_;
};

class DilatedNode final : public MaskNode {
 public:
  explicit DilatedNode(const Dilated& window) : window_(window) {
    at_least("Dilated", "lookback", std::min(window.lookback, far), 0);
    at_least("Dilated", "lookahead", std::min(window.lookahead, far), 0);
    at_least("Dilated", "step", window.step, 1);
  }
  bool allows(const Site& site, const QueryBlock&) const override {
    const std::int64_t distance = site.key - site.query;
    if (distance % window_.step != 0) return false;
    const std::int64_t count = distance / window_.step;
    return count >= -std::min(window_.lookback, far) && count <= std::min(window_.lookahead, far);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const std::int64_t step = window_.step, rows = block.query_end - block.query_begin;
    // Only counts that reach a key, so that "unlimited" costs no more than the keys.
    const std::int64_t first =
                           std::max(-std::min(window_.lookback, far), floor_div(1 - block.query_end, step)),
                       last = std::min(std::min(window_.lookahead, far),
                                       floor_div(block.key_len - block.query_begin, step));
    KeySpans some;
    for (std::int64_t count = first; count <= last; ++count)
      append(some, block.query_begin + count * step, block.query_end + count * step, block.key_len);
    if (rows == 1) return {some, some};
    if (step > 1) return {some, {}};
    return {some, span_within(block.query_end - 1 - std::min(window_.lookback, far),
                              block.query_begin + std::min(window_.lookahead, far) + 1, block.key_len)};
  }
  std::string print(int) const override {
    return "dilated(" + side(window_.lookback) + "," + side(window_.lookahead) + "," +
           std::to_string(window_.step) + ")";
  }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}

 private:
  Dilated window_;
};

}  // namespace

Mask to_mask(const Prefix& prefix) {
  return Mask(std::make_shared<PrefixNode>(prefix.lengths));
}
Mask to_mask(const Documents& documents) {
  return Mask(std::make_shared<DocumentsNode>(documents.boundaries));
}
Mask to_mask(const Chunked& chunked) {
  return Mask(std::make_shared<ChunkedNode>(chunked.size));
}
Mask to_mask(const Strided& strided) {
  return Mask(std::make_shared<StridedNode>(strided.stride));
}
Mask to_mask(const Dilated& dilated) {
  return Mask(std::make_shared<DilatedNode>(dilated));
}
}  // namespace fovea
