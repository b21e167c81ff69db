#include "inspect/page.h"

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "core/fnv1a.h"
#include "fovea/files/bytes.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

// Marks our own script and style as the only ones that may run: an event handler or a script that slipped
// through the escaping would lack it. It must not be known before the page is made, and the same data must
// give the same page, so it is a hash of the data, not a random number.
std::string nonce_of(std::string_view json, std::string_view body) {
  Fnv1a hash;
  hash.mix(json);
  hash.mix(body);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash.value()));
  return text;
}

void append(std::string& out, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) out += part;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char32_t code : decode_utf8(text)) {
    switch (code) {
      case U'&':
        escaped += "&amp;";
        break;
      case U'<':
        escaped += "&lt;";
        break;
      case U'>':
        escaped += "&gt;";
        break;
      case U'"':
        escaped += "&quot;";
        break;
      case U'\'':
        escaped += "&#39;";
        break;
      case U'\n':
        escaped += '\n';
        break;
      default:
        // The joiners of Arabic, Indic scripts and emoji are part of the writing, the other controls are not.
        if (is_control(code) && code != 0x200C && code != 0x200D) {
          append_utf8(escaped, code < 0x20 ? 0x2400 + code : kReplacement);
        } else {
          append_utf8(escaped, code);
        }
    }
  }
  return escaped;
}

std::string viewer_section(const InspectPage& page, std::size_t index, std::string_view heading) {
  std::string out;
  append(out, {"<section class=\"sample\">\n"});
  if (!page.title.empty()) {
    append(out, {"<", heading, ">", escape_html(page.title), "</", heading, ">\n"});
  }
  if (!page.source.empty() || !page.output.empty()) {
    out += "<dl class=\"sentences\">\n";
    if (!page.source.empty()) append(out, {"<dt>Source</dt><dd>", escape_html(page.source), "</dd>\n"});
    if (!page.output.empty()) append(out, {"<dt>Output</dt><dd>", escape_html(page.output), "</dd>\n"});
    out += "</dl>\n";
  }
  if (!page.facts.empty()) {
    out += "<dl class=\"facts\">\n";
    for (const auto& [name, value] : page.facts) {
      append(out, {"<div><dt>", escape_html(name), "</dt><dd>", escape_html(value), "</dd></div>\n"});
    }
    out += "</dl>\n";
  }
  append(out,
         {"<div class=\"viewer\" data-page=\"", std::to_string(index),
          "\"><noscript>The matrices are drawn by this page's own script.</noscript></div>\n</section>\n"});
  return out;
}

std::string assemble_page(std::string_view title, std::string_view body, std::string_view json) {
  const std::string nonce = nonce_of(json, body), name = escape_html(title);
  const std::pair<std::string_view, std::vector<std::string_view>> places[] = {
      {"nonce", {nonce}},      {"title", {name}},
      {"style", {kPageStyle}}, {"body", {body}},
      {"data", {json}},        {"script", {kScriptMatrices, kScriptGraph, kScriptViewer, kScriptInput}}};
  std::string out;
  out.reserve(body.size() + json.size() + kPageDocument.size() + kPageStyle.size() + kScriptMatrices.size() +
              kScriptGraph.size() + kScriptViewer.size() + kScriptInput.size() + name.size());
  // The document is read once, so that a {{name}} within what is filled in stays text.
  std::string_view left = kPageDocument;
  for (std::size_t open = left.find("{{"); open != std::string_view::npos; open = left.find("{{")) {
    const std::size_t close = left.find("}}", open);
    out += left.substr(0, open);
    for (const auto& [place, texts] : places) {
      if (place != left.substr(open + 2, close - open - 2)) continue;
      for (const std::string_view text : texts) out += text;
    }
    left.remove_prefix(close + 2);
  }
  out += left;
  return out;
}

std::string render_html(const InspectPage& page, const HtmlOptions& options) {
  const std::string json = viewer_json({page}, options);
  InspectPage section = {
      .title = "", .source = page.source, .output = page.output, .facts = page.facts, .maps = {}};
  return assemble_page(page.title.empty() ? "Attention" : page.title, viewer_section(section, 0, "h2"), json);
}

void write_html(const std::string& path, const InspectPage& page, const HtmlOptions& options) {
  files::write_file(path, render_html(page, options));
}

}  // namespace fovea::inspect
