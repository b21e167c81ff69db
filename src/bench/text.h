// The report of `fovea bench kernels` (plain JSON, as --json writes it) as text for the terminal and for a
// page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fovea::bench {

/// The machine, the peaks and the rivals; ends with a newline.
std::string peaks_text(const nlohmann::json& report);
std::string header_text(const nlohmann::json& report);
std::string row_text(const nlohmann::json& report, const nlohmann::json& row);
/// What the rivals refused; each reason once.
std::string refusals_text(const nlohmann::json& report);

/// Replaces the text between `<!-- bench:begin -->` and `<!-- bench:end -->` in a page by the report's
/// tables. Throws FileError where the markers are missing.
void write_markdown(const std::string& path, const nlohmann::json& report);

}  // namespace fovea::bench
