#include "fovea/attention/mask.h"

#include <algorithm>

#include "attention/mask_parts.h"
#include "fovea/attention/spec.h"
#include "fovea/core/error.h"

namespace fovea {
namespace {

using namespace mask_parts;

// Limits the sides of a window, which may be "unlimited", so that sums do not overflow.
std::int64_t bounded(std::int64_t count) {
  return std::min(count, far);
}

enum Binding : int { binds_or = 1, binds_and = 2, binds_not = 3 };

std::string parenthesised(std::string text, bool needed) {
  return needed ? "(" + text + ")" : text;
}

class EverythingNode final : public MaskNode {
 public:
  bool allows(const Site&, const QueryBlock&) const override { return true; }
  BlockSpans spans(const QueryBlock& block) const override {
    const KeySpans whole = span_within(0, block.key_len, block.key_len);
    return {whole, whole};
  }
  std::optional<KeyBand> band(const QueryBlock& block) const override {
    return KeyBand{-far, far, 0, block.key_len};
  }
  std::string print(int) const override { return "everything"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}
};

class CausalNode final : public MaskNode {
 public:
  bool allows(const Site& site, const QueryBlock&) const override { return site.key <= site.query; }
  BlockSpans spans(const QueryBlock& block) const override {
    return {span_within(0, block.query_end, block.key_len),
            span_within(0, block.query_begin + 1, block.key_len)};
  }
  std::optional<KeyBand> band(const QueryBlock& block) const override {
    return KeyBand{-far, 1, 0, block.key_len};
  }
  std::string print(int) const override { return "causal"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}
};

class WindowNode final : public MaskNode {
 public:
  explicit WindowNode(SlidingWindow window)
      : window_(window), back_(bounded(window.lookback)), ahead_(bounded(window.lookahead)) {}
  bool allows(const Site& site, const QueryBlock&) const override {
    return site.key >= site.query - back_ && site.key <= site.query + ahead_;
  }
  BlockSpans spans(const QueryBlock& block) const override {
    return {span_within(block.query_begin - back_, block.query_end + ahead_, block.key_len),
            span_within(block.query_end - 1 - back_, block.query_begin + ahead_ + 1, block.key_len)};
  }
  std::optional<KeyBand> band(const QueryBlock& block) const override {
    return KeyBand{-back_, ahead_ + 1, 0, block.key_len};
  }
  std::string print(int) const override {
    return "window(" + side(window_.lookback) + "," + side(window_.lookahead) + ")";
  }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {
    if (window_.lookback < 0 || window_.lookahead < 0) {
      throw InvalidArgument("make_plan", "spec.mask", "window sides of at least 0", print(0));
    }
  }

 private:
  SlidingWindow window_;
  std::int64_t back_, ahead_;
};

class GlobalNode final : public MaskNode {
 public:
  explicit GlobalNode(std::vector<std::int64_t> positions) : positions_(std::move(positions)) {
    std::sort(positions_.begin(), positions_.end());
    positions_.erase(std::unique(positions_.begin(), positions_.end()), positions_.end());
    for (const std::int64_t position : positions_) {
      if (position >= far) break;  // beyond every key; position + 1 might overflow
      if (!keys_.empty() && keys_.back().end == position) {
        ++keys_.back().end;
      } else {
        keys_.push_back({position, position + 1});
      }
    }
  }
  bool allows(const Site& site, const QueryBlock&) const override {
    return holds(site.key) || holds(site.query);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const KeySpans whole = span_within(0, block.key_len, block.key_len);
    const KeySpans keys = intersect(keys_, whole);
    const auto first = std::lower_bound(positions_.begin(), positions_.end(), block.query_begin);
    const auto last = std::lower_bound(positions_.begin(), positions_.end(), block.query_end);
    const std::int64_t globals = last - first, queries = block.query_end - block.query_begin;
    return {globals > 0 ? whole : keys, globals == queries ? whole : keys};
  }
  std::string print(int) const override { return "global(" + list_of(positions_) + ")"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {
    if (!positions_.empty() && positions_.front() < 0) {
      throw InvalidArgument("make_plan", "spec.mask", "global positions of at least 0", print(0));
    }
  }

 private:
  bool holds(std::int64_t position) const {
    return std::binary_search(positions_.begin(), positions_.end(), position);
  }
  std::vector<std::int64_t> positions_;
  KeySpans keys_;
};

class LengthsNode final : public MaskNode {
 public:
  explicit LengthsNode(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {}
  bool allows(const Site& site, const QueryBlock& block) const override {
    return site.key < length(site.batch, block);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const KeySpans keys = span_within(0, length(block.batch, block), block.key_len);
    return {keys, keys};
  }
  std::optional<KeyBand> band(const QueryBlock& block) const override {
    return KeyBand{-far, far, 0, std::min(length(block.batch, block), block.key_len)};
  }
  std::string print(int) const override { return "lengths(" + list_of(lengths_) + ")"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape& shape) const override {
    if (lengths_.empty()) return;
    if (static_cast<std::int64_t>(lengths_.size()) != shape.batch) {
      throw InvalidArgument("make_plan", "spec.mask",
                            "one length a batch entry, " + std::to_string(shape.batch), print(0));
    }
    for (const std::int64_t length : lengths_) {
      if (length < 0 || length > shape.key_len) {
        throw InvalidArgument("make_plan", "spec.mask",
                              "lengths in [0, key_len " + std::to_string(shape.key_len) + "]", print(0));
      }
    }
  }
  bool needs_key_lengths() const override { return lengths_.empty(); }

 private:
  std::int64_t length(std::int64_t batch, const QueryBlock& block) const {
    return lengths_.empty() ? block.key_lengths[static_cast<std::size_t>(batch)]
                            : lengths_[static_cast<std::size_t>(batch)];
  }
  std::vector<std::int64_t> lengths_;
};

class PairNode final : public MaskNode {
 public:
  enum class Kind { both, either };
  PairNode(Kind kind, std::shared_ptr<const MaskNode> a, std::shared_ptr<const MaskNode> b)
      : kind_(kind), a_(std::move(a)), b_(std::move(b)) {}
  bool allows(const Site& site, const QueryBlock& block) const override {
    return kind_ == Kind::both ? a_->allows(site, block) && b_->allows(site, block)
                               : a_->allows(site, block) || b_->allows(site, block);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const BlockSpans a = a_->spans(block), b = b_->spans(block);
    if (kind_ == Kind::both) return {intersect(a.some, b.some), intersect(a.all, b.all)};
    return {unite(a.some, b.some), unite(a.all, b.all)};
  }
  std::optional<KeyBand> band(const QueryBlock& block) const override {
    if (kind_ != Kind::both) return std::nullopt;
    const std::optional<KeyBand> a = a_->band(block), b = a ? b_->band(block) : std::nullopt;
    if (!a || !b) return std::nullopt;
    return KeyBand{std::max(a->first, b->first), std::min(a->last, b->last), std::max(a->begin, b->begin),
                   std::min(a->end, b->end)};
  }
  std::string print(int parent) const override {
    const int own = kind_ == Kind::both ? binds_and : binds_or;
    // The right side binds one step tighter: a & (b & c) keeps its parentheses, so that parsing gives the
    // same tree.
    return parenthesised(a_->print(own) + (kind_ == Kind::both ? " & " : " | ") + b_->print(own + 1),
                         own < parent);
  }
  void validate(const AttentionShape& shape) const override {
    a_->validate(shape);
    b_->validate(shape);
  }
  std::int64_t most_keys() const override { return std::min(a_->most_keys(), b_->most_keys()); }
  bool needs_key_lengths() const override { return a_->needs_key_lengths() || b_->needs_key_lengths(); }
  bool by_head() const override { return a_->by_head() || b_->by_head(); }
  int depth() const override { return depth_; }
  bool text_is_all() const override { return a_->text_is_all() && b_->text_is_all(); }
  bool equals(const PairNode& other) const;

 private:
  Kind kind_;
  std::shared_ptr<const MaskNode> a_, b_;
  int depth_ = 1 + std::max(a_->depth(), b_->depth());
};

class NotNode final : public MaskNode {
 public:
  explicit NotNode(std::shared_ptr<const MaskNode> inner) : inner_(std::move(inner)) {}
  bool allows(const Site& site, const QueryBlock& block) const override {
    return !inner_->allows(site, block);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const BlockSpans inner = inner_->spans(block);
    return {complement(inner.all, block.key_len), complement(inner.some, block.key_len)};
  }
  std::string print(int) const override { return "~" + inner_->print(binds_not); }
  void validate(const AttentionShape& shape) const override { inner_->validate(shape); }
  std::int64_t most_keys() const override { return inner_->most_keys(); }
  bool needs_key_lengths() const override { return inner_->needs_key_lengths(); }
  bool by_head() const override { return inner_->by_head(); }
  int depth() const override { return depth_; }
  bool text_is_all() const override { return inner_->text_is_all(); }
  bool equals(const NotNode& other) const;

 private:
  std::shared_ptr<const MaskNode> inner_;
  int depth_ = 1 + inner_->depth();
};

// Part by part where a text does not say all: a layer combines its own mask, which is one object for all
// calls, with the mask of each call.
bool are_equal(const MaskNode& a, const MaskNode& b) {
  if (&a == &b) return true;
  if (a.text_is_all() && b.text_is_all()) return a.print(0) == b.print(0);
  if (const auto* x = dynamic_cast<const PairNode*>(&a), *y = dynamic_cast<const PairNode*>(&b); x && y)
    return x->equals(*y);
  if (const auto* x = dynamic_cast<const NotNode*>(&a), *y = dynamic_cast<const NotNode*>(&b); x && y)
    return x->equals(*y);
  return false;
}
bool PairNode::equals(const PairNode& other) const {
  return kind_ == other.kind_ && are_equal(*a_, *other.a_) && are_equal(*b_, *other.b_);
}
bool NotNode::equals(const NotNode& other) const {
  return are_equal(*inner_, *other.inner_);
}

}  // namespace

Mask::Mask(Everything) {
  static const auto node = std::make_shared<const EverythingNode>();
  node_ = node;
}
Mask::Mask(Causal) {
  static const auto node = std::make_shared<const CausalNode>();
  node_ = node;
}
Mask::Mask(SlidingWindow window) : node_(std::make_shared<WindowNode>(window)) {}
Mask::Mask(GlobalTokens tokens) : node_(std::make_shared<GlobalNode>(std::move(tokens.positions))) {}
Mask::Mask(KeyLengths lengths) {
  static const auto of_the_call = std::make_shared<const LengthsNode>(std::vector<std::int64_t>());
  node_ =
      lengths.lengths.empty() ? of_the_call : std::make_shared<const LengthsNode>(std::move(lengths.lengths));
}

Mask::Mask(std::shared_ptr<const MaskNode> node) : node_(std::move(node)) {
  if (!node_) throw InvalidArgument("Mask", "node", "a mask", "a null pointer");
  if (node_->depth() > deepest_mask) {
    throw InvalidArgument("Mask", "node",
                          "at most " + std::to_string(deepest_mask) + " masks inside one another",
                          std::to_string(node_->depth()));
  }
}

Mask operator&(const Mask& a, const Mask& b) {
  return Mask(std::make_shared<PairNode>(PairNode::Kind::both, a.shared(), b.shared()));
}
Mask operator|(const Mask& a, const Mask& b) {
  return Mask(std::make_shared<PairNode>(PairNode::Kind::either, a.shared(), b.shared()));
}
Mask operator~(const Mask& a) {
  return Mask(std::make_shared<NotNode>(a.shared()));
}

bool operator==(const Mask& a, const Mask& b) {
  return are_equal(*a.node_, *b.node_);
}

std::string to_string(const Mask& mask) {
  return mask.node().print(0);
}

TileClass classify(const BlockSpans& spans, std::int64_t begin, std::int64_t end) {
  const auto reaches = [begin](const KeySpan& span) { return span.end <= begin; };
  const auto some = std::partition_point(spans.some.begin(), spans.some.end(), reaches);
  if (begin >= end || some == spans.some.end() || some->begin >= end) return TileClass::empty;
  const auto all = std::partition_point(spans.all.begin(), spans.all.end(), reaches);
  return all != spans.all.end() && all->begin <= begin && all->end >= end ? TileClass::full
                                                                          : TileClass::partial;
}

KeySpans intersect(const KeySpans& a, const KeySpans& b) {
  KeySpans result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const KeySpan common{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (common.begin < common.end) result.push_back(common);
    (a[i].end < b[j].end ? i : j) += 1;
  }
  return result;
}

KeySpans unite(const KeySpans& a, const KeySpans& b) {
  KeySpans result;
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool first = j == b.size() || (i < a.size() && a[i].begin <= b[j].begin);
    const KeySpan next = first ? a[i++] : b[j++];
    if (!result.empty() && next.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, next.end);
    } else {
      result.push_back(next);
    }
  }
  return result;
}

KeySpans complement(const KeySpans& a, std::int64_t key_len) {
  KeySpans result;
  std::int64_t begin = 0;
  for (const KeySpan& span : a) {
    if (span.begin > begin) result.push_back({begin, span.begin});
    begin = span.end;
  }
  if (begin < key_len) result.push_back({begin, key_len});
  return result;
}

}  // namespace fovea
