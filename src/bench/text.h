// The report of `fovea bench kernels` (plain JSON, as --json writes it) as text: to the terminal, and into a
// page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fovea::bench {

/// Machine, peaks, rivals; ends with a newline.
std::string peaks_text(const nlohmann::json& report);
std::string header_text(const nlohmann::json& report);
std::string row_text(const nlohmann::json& report, const nlohmann::json& row);
/// What was refused, and why, each reason once.
std::string refusals_text(const nlohmann::json& report);

/// The page with what stands between `<!-- bench:begin -->` and `<!-- bench:end -->` replaced by the report's
/// tables. Throws FileError where the markers are not there.
void write_markdown(const std::string& path, const nlohmann::json& report);

}  // namespace fovea::bench
