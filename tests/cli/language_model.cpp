// language_model FOLDER: writes a small language model without training, and a tokenizer, for generate.sh.
// language_model FOLDER SPM: also a SentencePiece model of the same lines to the folder SPM.
#include "fovea/models/language_model.h"

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "fovea/text/tokenizer.h"

int main(int count, char** arguments) {
  if (count != 2 && count != 3) return 2;
  try {
    const std::vector<std::string> lines{"the cat sat on the mat .", "a dog saw the cat on a mat .",
                                         "what sat on the dog ?"};
    const auto tokenizer = fovea::text::WhitespaceTokenizer::build(lines);
    const fovea::models::LanguageModel model({.vocabulary = tokenizer->size(),
                                              .dim = 16,
                                              .feed_forward = 32,
                                              .heads = 2,
                                              .layers = 2,
                                              .positions = 400},
                                             7);
    fovea::models::save_model(arguments[1], model);
    tokenizer->save(arguments[1]);
    if (count == 3)
      fovea::text::SentencePieceTokenizer::train(lines, {.vocabulary_size = 30})->save(arguments[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "language_model: %s\n", error.what());
    return 1;
  }
}
