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

/// A vector of two levels. A copy costs one reference; a write copies what is shared on the way to the
/// element: the list of nodes, and one node of at most `node_size` elements. So a fork of a sequence of a
/// million tokens, and the first append to it, copy some hundred references and no table of all pages.
template <class T, std::int64_t node_size>
class SharedVector {
 public:
  std::int64_t size() const noexcept { return size_; }
  const T& operator[](std::int64_t index) const noexcept {
    return root_->nodes[static_cast<std::size_t>(index / node_size)]
        ->items[static_cast<std::size_t>(index % node_size)];
  }
  void push_back(T item) {
    if (size_ % node_size == 0) {
      Ref<Node> node(new Node);
      node->items.push_back(std::move(item));
      own_root().nodes.push_back(std::move(node));
    } else {
      own_node(size_ / node_size).items.push_back(std::move(item));
    }
    ++size_;
  }
  /// Whether no other vector shares the element.
  bool is_own(std::int64_t index) const noexcept {
    return root_.unique() && root_->nodes[static_cast<std::size_t>(index / node_size)].unique();
  }
  /// For writing: nothing else shares the element's node afterwards.
  T& own(std::int64_t index) {
    return own_node(index / node_size).items[static_cast<std::size_t>(index % node_size)];
  }
  /// Drops the elements from `size` on.
  void shrink(std::int64_t size) {
    if (size >= size_) return;
    Root& root = own_root();
    while (static_cast<std::int64_t>(root.nodes.size()) > (size + node_size - 1) / node_size)
      root.nodes.pop_back();
    if (size % node_size != 0) {
      Node& node = own_node(size / node_size);
      while (static_cast<std::int64_t>(node.items.size()) > size % node_size) node.items.pop_back();
    }
    size_ = size;
  }

 private:
  struct Node : Counted {
    std::vector<T> items;
    // From the back: of pages that can be found again, those behind go first, as they cannot be found without
    // the ones before them.
    friend void dispose(Node* node) noexcept {
      while (!node->items.empty()) node->items.pop_back();
      delete node;
    }
  };
  struct Root : Counted {
    std::vector<Ref<Node>> nodes;
    friend void dispose(Root* root) noexcept {
      while (!root->nodes.empty()) root->nodes.pop_back();
      delete root;
    }
  };
  Root& own_root() {
    if (!root_) {
      root_ = Ref<Root>(new Root);
    } else if (!root_.unique()) {
      Ref<Root> copy(new Root);
      copy->nodes = root_->nodes;
      root_ = std::move(copy);
    }
    return *root_;
  }
  Node& own_node(std::int64_t n) {
    Ref<Node>& node = own_root().nodes[static_cast<std::size_t>(n)];
    if (!node.unique()) {
      Ref<Node> copy(new Node);
      copy->items.reserve(std::min<std::size_t>(node->items.size() + 1, node_size));
      copy->items = node->items;
      node = std::move(copy);
    }
    return *node;
  }

  Ref<Root> root_;
  std::int64_t size_ = 0;
};

}  // namespace fovea::cache
