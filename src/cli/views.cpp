#include "cli/views.h"

namespace fovea::cli {

inspect::InspectPage page_of(train::Translator& translator, const std::string& title,
                             const std::string& source, const std::string& target) {
  const auto seen = translator.inspect(source, target);
  inspect::InspectPage page{title, source, target, {}, {}};
  for (const models::CapturedWeights& captured : seen.maps) {
    const bool encoder = captured.name.starts_with("encoder"),
               cross = captured.name.starts_with("decoder.cross");
    // A decoder row is the word being written; its keys are the words it has read, <s> first.
    std::vector<std::string> read = seen.target_pieces;
    read.pop_back();
    read.insert(read.begin(), "<s>");
    const float* weights = captured.weights.data<float>();
    page.maps.push_back({captured.name, captured.layer, encoder ? seen.source_pieces : seen.target_pieces,
                         encoder || cross ? seen.source_pieces : read,
                         static_cast<int>(captured.weights.size(1)),
                         std::vector<float>(weights, weights + captured.weights.count())});
  }
  return page;
}

}  // namespace fovea::cli
