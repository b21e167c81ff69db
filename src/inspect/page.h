// The parts of a self-contained page. Private to this directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/inspect/data.h"
#include "fovea/inspect/html.h"

namespace fovea::inspect {

/// The files of src/inspect/page, put here by cmake/EmbedTexts.cmake. In the document {{...}} marks the
/// places to fill in. The script is its four parts in this order; it reads #fovea-data and fills every
/// .viewer.
extern const std::string_view kPageDocument, kPageStyle, kScriptMatrices, kScriptGraph, kScriptViewer,
    kScriptInput;

/// Text for HTML content and quoted attributes: valid UTF-8, markup escaped, control characters as visible
/// symbols.
std::string escape_html(std::string_view text);

/// The weights and tokens of all pages as JSON that cannot end a script element: <, >, & and everything
/// outside ASCII are \u escapes. Weights: {"bits", "low", "step", "weights": base64, little-endian codes}; a
/// code means low + code * step, except that the three highest are -inf, +inf and NaN.
std::string viewer_json(const std::vector<InspectPage>& pages, const HtmlOptions& options);

/// The section of page `index`: its texts, and the place where the script draws its matrices.
std::string viewer_section(const InspectPage& page, std::size_t index, std::string_view heading);

/// The whole document. `body` is HTML, `json` comes from viewer_json.
std::string assemble_page(std::string_view title, std::string_view body, std::string_view json);

}  // namespace fovea::inspect
