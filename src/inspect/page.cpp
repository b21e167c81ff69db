#include "inspect/page.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "fovea/core/error.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

// Marks our own script and style as the only ones that may run: an event handler or a script that slipped
// through the escaping would lack it. It must not be known before the page is made, and the same data must
// give the same page, so it is a hash of the data (FNV-1a, 64 bits), not a random number.
std::string nonce_of(std::string_view json, std::string_view body) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const std::string_view part : {json, body}) {
    for (const char byte : part) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3U;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
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
  const std::string nonce = nonce_of(json, body);
  const std::string name = escape_html(title);
  std::string out;
  out.reserve(body.size() + json.size() + kPageStyle.size() + kScriptMatrices.size() + kScriptViewer.size() +
              kScriptInput.size() + 2048);
  append(out,
         {"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-",
          nonce,
          "'; style-src 'nonce-",
          nonce,
          "'; img-src data: blob:; base-uri 'none'; form-action 'none'\">\n",
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
          "<meta name=\"color-scheme\" content=\"light dark\">\n",
          "<meta name=\"referrer\" content=\"no-referrer\">\n<title>",
          name,
          "</title>\n<style nonce=\"",
          nonce,
          "\">",
          kPageStyle,
          "</style>\n</head>\n<body>\n<header class=\"page-head\"><h1>",
          name,
          "</h1><button type=\"button\" id=\"theme\" aria-label=\"Switch between light and dark\">",
          "<span aria-hidden=\"true\">◐</span></button></header>\n<main>\n",
          body,
          "</main>\n",
          "<footer>Drawn by Fovea. This page is complete in itself and asks no network.</footer>\n",
          "<script type=\"application/json\" id=\"fovea-data\">",
          json,
          "</script>\n<script nonce=\"",
          nonce,
          "\">",
          kScriptMatrices,
          kScriptViewer,
          kScriptInput,
          "</script>\n</body>\n</html>\n"});
  return out;
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw FileError(path, -1, std::string("cannot be written: ") + std::strerror(errno));
}

std::string render_html(const InspectPage& page, const HtmlOptions& options) {
  const std::string json = viewer_json({page}, options);
  InspectPage section = {
      .title = "", .source = page.source, .output = page.output, .facts = page.facts, .maps = {}};
  return assemble_page(page.title.empty() ? "Attention" : page.title, viewer_section(section, 0, "h2"), json);
}

void write_html(const std::string& path, const InspectPage& page, const HtmlOptions& options) {
  write_text(path, render_html(page, options));
}

}  // namespace fovea::inspect
