// Score mods as values: element-wise changes of a score, after the scale and before the mask. Any number of
// them apply in the order given. A mod of your own is made by make_mod (make_mod.h).
//
// The same value serves as a weight mod (AttentionSpec::weight_mods). It then gets 1 as its score, and the
// weight is multiplied by its result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fovea/attention/part_checks.h"

namespace fovea {

class ModNode;  // mod_node.h

namespace mod_detail {
/// A lambda that is not wrapped in a mod.
template <class T>
concept BareFunction = members::HasCallOperator<T>;
}  // namespace mod_detail

/// A score mod: a small immutable value, cheap to copy.
class Mod {
 public:
  /// Throws InvalidArgument for nullptr or more than max_mod_arguments arguments.
  explicit Mod(std::shared_ptr<const ModNode> node);
  /// A type with a to_mod is a mod too: the built-in ones below, and yours, found by argument-dependent
  /// look-up.
  template <class T>
  requires(!std::is_base_of_v<Mod, T> && requires(const T& t) { to_mod(t); })
      Mod(const T& mod)  // NOLINT(google-explicit-constructor)
      : Mod(to_mod(mod)) {}
  /// A lambda is not a mod yet. It stops the compilation with a sentence that says so.
  template <class T>
  requires(mod_detail::BareFunction<T> && !std::is_base_of_v<Mod, T> && !requires(const T& t) { to_mod(t); })
      Mod(const T&) {  // NOLINT(google-explicit-constructor)
    constexpr bool is_function = mod_detail::BareFunction<T>;
    static_assert(!is_function,
                  "a lambda becomes a mod by its name and those of its arguments: make_mod(\"decay\", "
                  "{\"slope\"}, [](auto score, Site at, auto slope) { ... })");
  }
  const ModNode& node() const noexcept { return *node_; }

  /// True for copies of one mod, and for mods of one type with equal texts and arguments where those say all.
  /// They do for the built-in ones, and for those of one lambda without captures. So a spec that is written
  /// anew for each call needs one plan.
  friend bool operator==(const Mod& a, const Mod& b);

 private:
  std::shared_ptr<const ModNode> node_;
};

using Mods = std::vector<Mod>;

/// "softcap(50)", "alibi", "relative(32,128,causal)", or the name given to make_mod.
std::string to_string(const Mod& mod);

// The built-in ones.

/// cap·tanh(score / cap): scores stay inside (-cap, cap) (Gemma 2, arXiv 2408.00118). cap > 0.
struct SoftCap {
  double cap = 50.0;
};
/// score - slope·(query - key) (Press et al. 2022, arXiv 2108.12409). Argument "slope", usually [1, heads, 1,
/// 1].
struct AlibiBias {};
/// score - slope·|query - key|: the same for an encoder, which sees both sides (the paper's authors' form for
/// it). Argument "slope", usually [1, heads, 1, 1].
struct SymmetricAlibiBias {};
/// The slopes of the paper for a number of heads: 2^(-8/n), 2^(-16/n), ... for a power of two. For other
/// numbers of heads they are interleaved with those of the next power of two.
std::vector<double> alibi_slopes(std::int64_t num_heads);
/// score + bias. Argument "bias", [batch or 1, heads or 1, query_len or 1, key_len or 1].
struct DenseBias {};
/// score + table[bucket(query - key)] (T5, Raffel et al. 2020, arXiv 1910.10683). Each near distance has its
/// own bucket; far distances share logarithmic ones. Argument "table", [1, heads or 1, 1, buckets].
/// Bidirectional halves the buckets between the two directions. Causal gives keys ahead of the query the
/// bucket of distance 0.
struct RelativeBias {
  enum class Direction : std::uint8_t { bidirectional, causal };
  std::int64_t buckets = 32, max_distance = 128;
  Direction direction = Direction::bidirectional;
};
std::int64_t relative_bucket(const RelativeBias& bias, std::int64_t distance);

/// score + Σ_{l = j+1..p} log f_l: gates computed from the data make far keys fade (FoX, Lin et al. 2025,
/// arXiv 2503.02130). Arguments "query" [.., query_len, 1] and "key" [.., 1, key_len]; both are the running
/// sums of log f, from mechanisms/forget.h. The mask must hide the keys ahead of a query, as Causal does: for
/// them the sum changes its sign, and the gates would favour them. No call checks this, because a query
/// behind all keys needs no mask.
struct ForgetGate {};

/// score / value. As value goes to 0, softmax becomes the argmax. value > 0.
struct Temperature {
  double value = 1.0;
};
/// score / temperature, learned. Argument "temperature", usually [1, heads, 1, 1].
struct LearnedTemperature {};

/// score + table[query row][distance], with distances cut to [-max_distance, max_distance] and entry
/// max_distance + query - key. The score depends on the query and on the distance of the key (Shaw et al.
/// 2018, arXiv 1803.02155). With the table (q + w)·r of mechanisms/relative_key.h it is Transformer-XL's (Dai
/// et al. 2019, arXiv 1901.02860). Argument "table", [batch or 1, heads or 1, query_len or 1, 2·max_distance
/// + 1].
struct RelativeKeyBias {
  std::int64_t max_distance = 128;
};

/// Keeps the keys within `reach` of a center that the query chose, and hides the others (Luong et al. 2015,
/// arXiv 1508.04025, section 3.2, local-p). Argument "center", [batch, heads or 1, query_len, 1], a position
/// in key coordinates, from mechanisms/local.h. The mod makes scores of -inf, so only mods that also hide
/// keys may come after it. reach >= 0.
struct LocalWindow {
  double reach = 10.0;
};
/// A weight mod: weight · exp(-(key - center)² / 2·deviation²) (same section, eq. 10; the paper's deviation
/// is reach / 2). Argument "center", as above; its gradient trains the network that predicted it. deviation >
/// 0.
struct LocalGaussian {
  double deviation = 5.0;
};

Mod to_mod(const SoftCap& cap);
Mod to_mod(const Temperature& temperature);
Mod to_mod(LearnedTemperature);
Mod to_mod(const RelativeKeyBias& bias);
Mod to_mod(const LocalWindow& window);
Mod to_mod(const LocalGaussian& gaussian);
Mod to_mod(AlibiBias);
Mod to_mod(SymmetricAlibiBias);
Mod to_mod(DenseBias);
Mod to_mod(ForgetGate);
Mod to_mod(const RelativeBias& bias);

}  // namespace fovea
