// family_model FOLDER: writes random weights for the config.json in the folder, for heads.sh.
#include <cstdio>
#include <exception>

#include "models/random_family.h"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  try {
    const std::string folder = arguments[1], config = fovea::models::ModelFolder(folder).config();
    fovea::models::save_random_model(folder, config);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "family_model: %s\n", error.what());
    return 1;
  }
}
