#include <fmt/format.h>
#include <chrono>
#include <cstdlib>
#include <cmath>
#include "fovea/core/philox.h"
#include "fovea/models/language_model.h"
#include "gallery.h"
#include "ngram.h"
#include "texts.h"
using namespace fovea;
using namespace generate;
namespace {
double env(const char* n, double d) { const char* v = std::getenv(n); return v ? std::atof(v) : d; }
double bits(models::LanguageModel& m, const std::string& t, int L) {
  double sum = 0; long count = 0; const long S = L / 2;
  for (long b = 0; b + 1 < (long)t.size(); b += S) {
    const long first = b == 0 ? 1 : b + L - S + 1; // targets from
    const long end = std::min<long>(b + L + 1, t.size());
    if (first >= end) break;
    models::Padded p; p.size = 1; p.length = end - b - 1; p.lengths = {p.length};
    for (long i = b; i + 1 < end; ++i) p.ids.push_back((unsigned char)t[i]);
    nn::Context c; const Tensor lp = m.log_probabilities(m.hidden(c, p));
    for (long i = first; i < end; ++i) { sum -= lp.data<float>()[(i - 1 - b) * 256 + (unsigned char)t[i]]; ++count; }
  }
  return sum / count / std::log(2.0);
}
void example(gallery::Run& run) {
  const Texts t = read_texts(run.data());
  run.say(fmt::format("{} files {} bytes, left out {}, train {} valid {} test {}", t.sources.size(), t.bytes, t.left_out, t.train.size(), t.valid.size(), t.test.size()));
  if (env("NG", 0)) for (int c : {4, 5, 6, 7}) {
    NGram g(t.train, c);
    const double a = g.bits_per_character(t.valid);
    g.tune(t.valid);
    run.say(fmt::format("ngram {}: valid {:.4f} tuned {:.4f}", c, a, g.bits_per_character(t.valid)));
  }
  const int B = env("B", 16), T = env("T", 128), U = env("U", 1000);
  models::LanguageModel m({.vocabulary = 256, .dim = (int)env("D", 96), .feed_forward = (int)env("F", 256), .heads = (int)env("H", 4), .layers = (int)env("L", 3), .dropout = (float)env("DR", 0)}, run.seed());
  run.say(fmt::format("{} params", m.parameters().count()));
  train::FitOptions o{.updates = U, .schedule = nn::WarmupCosine{.peak = env("LR", 2e-3), .warmup = (int)env("W", 100)}};
  o.seed = run.seed();
  o.adam.beta2 = env("B2", 0.98);
  const double limit = 1;
  auto st = train::fit(m.parameters(), o, [&](nn::Context& c, std::int64_t u) {
    PhiloxStream r(run.seed(), (std::uint64_t)u << 20);
    std::vector<std::vector<std::int32_t>> s;
    for (int b = 0; b < B; ++b) {
      const long at = r.next_below(t.train.size() - T - 1);
      s.emplace_back();
      for (long i = at; i <= at + T; ++i) s.back().push_back((unsigned char)t.train[i]);
    }
    return m.loss(c, models::pad(s), {.scale = 1.0f / (B * T)});
  }, [&](const train::FitStep& s) { if (s.update % (U / 10) == 0) run.say(fmt::format("{} loss {:.3f} bits, {:.1f} s, {:.0f} tok/s", s.update, s.loss / std::log(2.0), s.seconds, s.update * B * T / s.seconds)); });
  auto b0 = std::chrono::steady_clock::now();
  const double v = bits(m, t.valid, env("TE", T));
  run.say(fmt::format("RESULT valid {:.4f} in {:.1f} s + eval {:.1f}", v, st.seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - b0).count()));
}
}
int main(int argc, char** argv) { return gallery::run(argc, argv, {.name = "generate", .title = "Writing text", .data = "x"}, example); }
