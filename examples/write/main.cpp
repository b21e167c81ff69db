// Continues a text by a language model, whose folder transformers' save_pretrained wrote.
#include <algorithm>
#include <exception>
#include <iostream>

#include "fovea/models/generate_until.h"
#include "fovea/models/model_folder.h"
#include "fovea/text/tokenizer_json.h"

int main(int argc, char** argv) {
  using namespace fovea;
  if (argc != 3) {
    std::cerr << "usage: write FOLDER TEXT\n";
    return 2;
  }
  try {
    const models::ModelFolder folder(argv[1]);
    models::LanguageModel model = folder.language_model(autograd::WeightType::int8);  // {}: as f32
    const text::JsonTokenizer tokenizer = text::read_folder_tokenizer(argv[1]).tokenizer;
    const auto prompt = tokenizer.encode(argv[2]).ids;
    const auto stops = folder.generation().stop_ids;
    const models::Generated written =
        models::generate_until(model, prompt, {.temperature = 0, .length = 16},
                               [&](auto ids) { return std::ranges::find(stops, ids.back()) != stops.end(); });
    std::cout << argv[2] << tokenizer.decode(written.ids) << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
