#include "ngram.h"

#include <algorithm>
#include <cmath>

namespace generate {
namespace {

std::uint64_t low_bytes(std::uint64_t code, int count) {
  return count >= 8 ? code : code & ((std::uint64_t{1} << (8 * count)) - 1);
}

std::size_t kind(double count) {
  return static_cast<std::size_t>(std::min(count, 3.0)) - 1;
}

}  // namespace

NGram::Order NGram::count(std::vector<std::uint64_t> codes) {
  Order order;
  std::sort(codes.begin(), codes.end());
  std::array<double, 5> with_count{};  // grams that were seen once, twice, ...
  for (std::size_t i = 0, end = 0; i < codes.size(); i = end) {
    while (end < codes.size() && codes[end] == codes[i]) ++end;
    const auto times = static_cast<std::uint32_t>(end - i);
    order.grams.push_back(codes[i]);
    order.counts.push_back(times);
    if (times < with_count.size()) with_count[times] += 1.0;
    if (order.contexts.empty() || order.contexts.back().code != codes[i] >> 8)
      order.contexts.push_back({.code = codes[i] >> 8});
    order.contexts.back().total += times;
    order.contexts.back().of_count[kind(times)] += 1.0;
  }
  // Equation 26 of Chen & Goodman; a text too small for it gets halves.
  const double y = with_count[1] / std::max(1.0, with_count[1] + 2.0 * with_count[2]);
  for (std::size_t i = 1; i <= 3; ++i) {
    const double next = with_count[i] > 0.0 ? with_count[i + 1] / with_count[i] : 0.5;
    const double most = static_cast<double>(i);
    order.discounts[i - 1] = std::clamp(most - (most + 1.0) * y * next, 0.1, most);
  }
  return order;
}

NGram::NGram(std::string_view text, int context) {
  std::vector<std::uint64_t> codes;
  std::uint64_t code = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    code = code << 8 | static_cast<unsigned char>(text[i]);
    if (static_cast<int>(i) >= context) codes.push_back(low_bytes(code, context + 1));
  }
  orders_.resize(static_cast<std::size_t>(context) + 1);
  for (int n = context; n >= 0; --n) {
    Order& order = orders_[static_cast<std::size_t>(n)] = count(std::move(codes));
    codes.clear();
    for (const std::uint64_t gram : order.grams) codes.push_back(low_bytes(gram, n));
  }
}

double NGram::probability(std::string_view before, unsigned char next) const {
  double p = 1.0 / 256.0;
  std::uint64_t code = 0;
  for (std::size_t n = 0; n < orders_.size() && n <= before.size(); ++n) {
    if (n > 0) code |= std::uint64_t{static_cast<unsigned char>(before[before.size() - n])} << (8 * (n - 1));
    const Order& order = orders_[n];
    const auto context = std::lower_bound(order.contexts.begin(), order.contexts.end(), code,
                                          [](const Context& c, std::uint64_t wanted) { return c.code < wanted; });
    if (context == order.contexts.end() || context->code != code) break;
    double taken = 0.0, kept = 0.0;
    for (std::size_t i = 0; i < 3; ++i)
      taken += std::min(order.factor * order.discounts[i], i + 1.0) * context->of_count[i];
    const std::uint64_t gram = code << 8 | next;
    const auto found = std::lower_bound(order.grams.begin(), order.grams.end(), gram);
    if (found != order.grams.end() && *found == gram) {
      const double times = order.counts[static_cast<std::size_t>(found - order.grams.begin())];
      kept = times - std::min(order.factor * order.discounts[kind(times)], kind(times) + 1.0);
    }
    p = (kept + taken * p) / context->total;
  }
  return p;
}

double NGram::bits_per_character(std::string_view text) const {
  double bits = 0.0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const std::size_t reach = std::min(i, orders_.size() - 1);
    bits -= std::log2(probability(text.substr(i - reach, reach), static_cast<unsigned char>(text[i])));
  }
  return bits / static_cast<double>(text.size() - 1);
}

void NGram::tune(std::string_view valid) {
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (auto order = orders_.rbegin(); order != orders_.rend(); ++order) {
      double best = bits_per_character(valid), chosen = order->factor;
      for (const double factor : {0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4}) {
        order->factor = factor;
        const double bits = bits_per_character(valid);
        if (bits < best) {
          best = bits;
          chosen = factor;
        }
      }
      order->factor = chosen;
    }
  }
}

}  // namespace generate
