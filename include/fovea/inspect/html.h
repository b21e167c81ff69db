// Matrices as one self-contained page: no network (its Content-Security-Policy forbids it), every text
// escaped.
#pragma once

#include <string>

#include "fovea/inspect/data.h"

namespace fovea::inspect {

/// How weights are stored in the page: one or two bytes each, 4/3 of that as base64. The error is at most
/// half a step of (largest - smallest) / 252 or / 65532 of the map.
enum class Quantisation { automatic, bits8, bits16 };

struct HtmlOptions {
  /// `automatic` takes 16 bits up to 4 million weights (a page of about 11 MB) and 8 bits beyond.
  Quantisation quantisation = Quantisation::automatic;
};

/// The page as text. Throws InvalidArgument if a map's sizes disagree.
std::string render_html(const InspectPage& page, const HtmlOptions& options = {});

/// Writes render_html. Throws FileError if the file cannot be written.
void write_html(const std::string& path, const InspectPage& page, const HtmlOptions& options = {});

}  // namespace fovea::inspect
