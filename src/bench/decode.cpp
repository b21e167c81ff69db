#include "bench/decode.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "bench/memory.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"

namespace fovea::bench {
namespace {

Decoded decode_once(models::SequenceToSequence& model, std::int64_t length, int beam, models::Reuse reuse) {
  std::vector<std::int32_t> source(static_cast<std::size_t>(length) - 1);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = 4 + static_cast<std::int32_t>(i * 7919 % 990);
  reset_peak_memory();
  const auto begin = std::chrono::steady_clock::now();
  Decoded decoded;
  const auto result = models::decode(
      model, {source}, {.beam_size = beam, .exact_length = length, .reuse = reuse}, &decoded.stats);
  decoded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  decoded.tokens_per_second = static_cast<double>(length) / decoded.seconds;
  decoded.megabytes = peak_memory();
  decoded.ids = result[0][0].ids;
  return decoded;
}

}  // namespace

void measure_decoding(const std::vector<std::int64_t>& lengths, int beam,
                      const std::function<void(const DecodeRow&)>& tell) {
  const std::pair<const char*, std::unique_ptr<models::SequenceToSequence>> list[] = {
      {"rnn none", models::make_rnn({.vocabulary = 1000, .attention = models::RnnAttention::none}, 1)},
      {"rnn additive", models::make_rnn({.vocabulary = 1000}, 1)},
      {"transformer", models::make_transformer({.vocabulary = 1000}, 1)}};
  for (const auto& [name, model] : list) {
    for (const std::int64_t length : lengths) {
      decode_once(*model, std::min<std::int64_t>(length, 32), beam, models::Reuse::on);
      DecodeRow row{name, length, decode_once(*model, length, beam, models::Reuse::on),
                    decode_once(*model, length, beam, models::Reuse::off)};
      row.ratio = row.off.seconds / row.on.seconds;
      tell(row);
    }
  }
}

}  // namespace fovea::bench
