// Reference counts of rows that sequences share, and a vector whose copies share everything until one of them
// is written. Nothing here knows of rows or pages.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace fovea::cache {

/// A count of references inside the object. It replaces std::shared_ptr because use_count is a relaxed load
/// there. A relaxed load does not order another thread's last reads before the writes of the thread that sees
/// a 1.
class Counted {
 public:
  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// Retains unless the last reference is gone already.
  bool try_retain() const noexcept {
    std::int64_t count = count_.load(std::memory_order_relaxed);
    while (count > 0) {
      if (count_.compare_exchange_weak(count, count + 1, std::memory_order_acquire,
                                       std::memory_order_relaxed))
        return true;
    }
    return false;
  }
  /// Whether that was the last reference.
  bool drop() const noexcept { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool unique() const noexcept { return count_.load(std::memory_order_acquire) == 1; }

 private:
  mutable std::atomic<std::int64_t> count_{0};
};

/// A reference to a Counted object. The last one calls `dispose(T*)`, found by the type of T.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) noexcept : object_(object) {
    if (object_) object_->retain();
  }
  /// Takes over a reference that is counted already.
  static Ref adopt(T* object) noexcept {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  Ref(const Ref& other) noexcept : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ && object_->drop()) dispose(object_);
  }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* get() const noexcept { return object_; }
  bool unique() const noexcept { return object_->unique(); }

 private:
  T* object_ = nullptr;
};

/// A vector as a tree whose leaves have at most `leaf_size` elements and whose other nodes at most 32
/// children. A copy costs one reference; a write copies the nodes on the way to the element that are shared.
/// So a fork of a sequence of a million tokens, and the first append to it, copy some hundred references and
/// no table of all pages. With one list of all leaves that append took 3.9 microseconds, and it takes 0.9.
template <class T, std::int64_t leaf_size>
class SharedVector {
 public:
  std::int64_t size() const noexcept { return size_; }
  const T& operator[](std::int64_t index) const noexcept {
    const Node* node = root_.get();
    for (std::int64_t span = span_; span > leaf_size;) {
      span /= branches;
      node = node->children[at(index / span % branches)].get();
    }
    return node->items[at(index % leaf_size)];
  }
  /// If it throws (bad_alloc), the elements have not changed.
  void push_back(T item) {
    if (!root_) {
      root_ = Ref<Node>(new Node);
      span_ = leaf_size;
    } else if (size_ == span_) {
      Ref<Node> above(new Node);
      above->children.push_back(root_);
      root_ = std::move(above);
      span_ *= branches;
    }
    leaf_of(size_).items.push_back(std::move(item));
    ++size_;
  }
  /// Whether no other vector shares the element.
  bool is_own(std::int64_t index) const noexcept {
    const Ref<Node>* node = &root_;
    for (std::int64_t span = span_; node->unique(); node = &(*node)->children[at(index / span % branches)]) {
      if (span == leaf_size) return true;
      span /= branches;
    }
    return false;
  }
  /// For writing: nothing else shares the element's leaf afterwards. Throws bad_alloc.
  T& own(std::int64_t index) { return leaf_of(index).items[at(index % leaf_size)]; }
  /// Drops the elements from `size` on. If it throws (bad_alloc), nothing has changed. It does not throw
  /// where all elements that go were pushed since the last copy.
  void shrink(std::int64_t size) {
    if (size >= size_) return;
    if (size == 0) {
      *this = {};
      return;
    }
    // Copies what is shared on the way to the cut before anything is dropped.
    Node* node = &writable(root_);
    for (std::int64_t span = span_ / branches; span >= leaf_size && size % span != 0; span /= branches)
      node = &writable(node->children[at(size / span % branches)]);
    node = root_.get();
    for (std::int64_t span = span_ / branches; span >= leaf_size; span /= branches) {
      while (std::ssize(node->children) > (size - 1) / span % branches + 1) node->children.pop_back();
      if (size % span == 0) break;
      node = node->children.back().get();
    }
    // Where a leaf ends at the cut, this is no leaf, and has no items.
    while (std::ssize(node->items) > size % leaf_size) node->items.pop_back();
    size_ = size;
  }

 private:
  static constexpr std::int64_t branches = 32;
  struct Node : Counted {
    std::vector<Ref<Node>> children;
    std::vector<T> items;  // of a leaf
    // From the back: of pages that can be found again, those behind go first, as they cannot be found without
    // the ones before them.
    friend void dispose(Node* node) noexcept {
      while (!node->children.empty()) node->children.pop_back();
      while (!node->items.empty()) node->items.pop_back();
      delete node;
    }
  };
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  static Node& writable(Ref<Node>& node) {
    if (!node.unique()) {
      Ref<Node> copy(new Node);
      copy->children.reserve(node->children.size() + (node->children.empty() ? 0 : 1));
      copy->children = node->children;
      copy->items.reserve(node->items.size() + (node->items.empty() ? 0 : 1));
      copy->items = node->items;
      node = std::move(copy);
    }
    return *node;
  }
  // The leaf of an element, or of the one behind the last, after all nodes above it became this vector's own.
  Node& leaf_of(std::int64_t index) {
    Node* node = &writable(root_);
    for (std::int64_t span = span_; span > leaf_size;) {
      span /= branches;
      const std::int64_t child = index / span % branches;
      if (child == std::ssize(node->children)) node->children.push_back(Ref<Node>(new Node));
      node = &writable(node->children[at(child)]);
    }
    return *node;
  }

  Ref<Node> root_;
  std::int64_t size_ = 0, span_ = 0;  // span_: the elements that a tree of this height can hold
};

}  // namespace fovea::cache
