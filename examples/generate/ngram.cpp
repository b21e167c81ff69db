#include "ngram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fovea/core/error.h"

namespace generate {
namespace {

std::size_t kind(double count) {
  return static_cast<std::size_t>(std::min(count, 3.0)) - 1;
}

}  // namespace

std::uint64_t NGram::last(std::uint64_t code, std::size_t symbols) const {
  const auto kept = static_cast<int>(symbols) * width_;
  return kept >= 64 ? code : code & ((std::uint64_t{1} << kept) - 1);
}

NGram::Order NGram::count(std::vector<std::uint64_t> codes) const {
  Order order;
  std::sort(codes.begin(), codes.end());
  std::array<double, 5> with_count{};  // number of grams seen once, twice, ...
  for (std::size_t i = 0, end = 0; i < codes.size(); i = end) {
    while (end < codes.size() && codes[end] == codes[i]) ++end;
    const auto times = static_cast<std::uint32_t>(end - i);
    const std::uint64_t context = codes[i] >> width_;
    order.grams.push_back(codes[i]);
    order.counts.push_back(times);
    if (times < with_count.size()) with_count[times] += 1.0;
    if (order.contexts.empty() || order.contexts.back().code != context)
      order.contexts.push_back({.code = context});
    order.contexts.back().total += times;
    order.contexts.back().of_count[kind(times)] += 1.0;
  }
  // Equation 26 of Chen & Goodman, which assumes that some grams were seen once and some twice.
  const double y = with_count[1] / std::max(1.0, with_count[1] + 2.0 * with_count[2]);
  for (std::size_t i = 1; i <= 3; ++i) {
    const double next = with_count[i] > 0.0 ? with_count[i + 1] / with_count[i] : 0.5;
    const auto most = static_cast<double>(i);
    order.discounts[i - 1] = std::clamp(most - (most + 1.0) * y * next, 0.1, most);
  }
  return order;
}

NGram::NGram(std::span<const std::int32_t> symbols, std::int64_t alphabet, int context)
    : alphabet_(alphabet), width_(std::bit_width(static_cast<std::uint64_t>(alphabet - 1))) {
  if (context < 0 || (context + 1) * width_ > 64) {
    throw fovea::InvalidArgument("NGram", "context", "0 to " + std::to_string(64 / width_ - 1),
                                 std::to_string(context));
  }
  const auto length = static_cast<std::size_t>(context) + 1;
  std::vector<std::uint64_t> codes;
  std::uint64_t code = 0;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    code = code << width_ | static_cast<std::uint64_t>(symbols[i]);
    if (i + 1 >= length) codes.push_back(last(code, length));
  }
  orders_.resize(length);
  for (std::size_t n = length; n-- > 0;) {
    orders_[n] = count(std::move(codes));
    codes.clear();
    for (const std::uint64_t gram : orders_[n].grams) codes.push_back(last(gram, n));
  }
}

double NGram::probability(std::span<const std::int32_t> before, std::int32_t next) const {
  double p = 1.0 / static_cast<double>(alphabet_);
  std::uint64_t code = 0;
  for (std::size_t n = 0; n <= before.size(); ++n) {
    if (n > 0) {
      code |= static_cast<std::uint64_t>(before[before.size() - n])
              << (static_cast<std::size_t>(width_) * (n - 1));
    }
    const Order& order = orders_[n];
    const auto context =
        std::lower_bound(order.contexts.begin(), order.contexts.end(), code,
                         [](const Context& c, std::uint64_t wanted) { return c.code < wanted; });
    if (context == order.contexts.end() || context->code != code) break;
    double taken = 0.0, kept = 0.0;
    for (std::size_t i = 0; i < 3; ++i) taken += order.discounts[i] * context->of_count[i];
    const std::uint64_t gram = code << width_ | static_cast<std::uint64_t>(next);
    const auto found = std::lower_bound(order.grams.begin(), order.grams.end(), gram);
    if (found != order.grams.end() && *found == gram) {
      const double times = order.counts[static_cast<std::size_t>(found - order.grams.begin())];
      kept = times - order.discounts[kind(times)];
    }
    p = (kept + taken * p) / context->total;
  }
  return p;
}

std::vector<double> NGram::bits(std::span<const std::int32_t> symbols) const {
  std::vector<double> bits;
  for (std::size_t i = 1; i < symbols.size(); ++i) {
    const std::size_t reach = std::min(i, orders_.size() - 1);
    bits.push_back(-std::log2(probability(symbols.subspan(i - reach, reach), symbols[i])));
  }
  return bits;
}

}  // namespace generate
