// octavo convert: explicit model <-> float model and calibration table.
#include "onnx/edit/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "api/ranges.h"
#include "api/session.h"
#include "cli/commands/commands.h"
#include "cli/file.h"
#include "quant/table.h"

namespace octavo::cli {
namespace {

struct ConvertOptions {
  std::string model, to_table, float_model, json, header = "100700-EntropyCalibration2", from_table, qdq_model,
                                                  placement = "residual";
  bool approximate = false;
};

Status write_text(const std::string& path, const std::string& text) {
  return write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

void list(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  fmt::print("{} {}:\n", names.size(), what);
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 10); ++i) fmt::print("  {}\n", names[i]);
  if (names.size() > 10) fmt::print("  and {} more\n", names.size() - 10);
}

Result<int> to_table(const ConvertOptions& o) {
  const auto dash = o.header.find('-');
  if (dash == std::string::npos || dash == 0 || o.header.find_first_not_of("0123456789") != dash || dash + 1 == o.header.size()) {
    return fail(
        ErrorKind::usage,
        fmt::format("--header {}: not VERSION-ALGORITHM, as in 100700-EntropyCalibration2 or 8510-MinMaxCalibration", o.header));
  }
  OCTAVO_TRY(const auto session, api::Session::open(o.model));
  OCTAVO_TRY(const auto result, onnx::table_of(session->parsed(), o.approximate, o.float_model));
  if (result.scales.empty())
    return fail(ErrorKind::usage,
                fmt::format("\"{}\" has no quantized activations: there is nothing to put into a table", o.model));
  OCTAVO_CHECK(write_text(o.to_table, quant::table_text(result.scales, o.header)));
  if (!o.json.empty()) OCTAVO_CHECK(write_text(o.json, quant::ranges_json(ir::symmetric(result.scales))));
  fmt::print("{}: {} tensors\n", o.to_table, result.scales.size());
  list("notes", result.notes);
  return 0;
}

Result<int> from_table(const ConvertOptions& o) {
  if (o.qdq_model.empty()) return fail(ErrorKind::usage, "--from-table needs --qdq-model FILE to write the model with pairs to");
  OCTAVO_TRY(const auto scales, api::read_ranges(o.from_table));
  OCTAVO_TRY(const auto session, api::Session::open(o.model));
  OCTAVO_TRY(const auto result, onnx::pairs_into(session->parsed(), scales, o.placement, o.qdq_model));
  if (result.pairs == 0) {
    list("tensors have no usable scale in the table", result.missing);
    return fail(ErrorKind::usage, fmt::format("no tensor of \"{}\" that placement {} quantizes has a scale in \"{}\"", o.model,
                                              o.placement, o.from_table));
  }
  fmt::print("{}: {} activations quantized, placement {}\n", o.qdq_model, result.pairs, o.placement);
  list("tensors stay float, without a usable scale in the table", result.missing);
  list("entries of the table are not used by this placement", result.unused);
  return 0;
}

}  // namespace

Command add_convert(Arguments& app) {
  auto o = std::make_shared<ConvertOptions>();
  app.add_option("MODEL", o->model, "ONNX model")->required()->reads("FILE");
  auto* to = app.add_option("--to-table", o->to_table, "Write the scales of the model's Q/DQ pairs as a calibration table")
                 ->writes("FILE");
  app.add_option("--float-model", o->float_model, "Also write the model without the pairs")->needs(to)->writes("FILE");
  app.add_option("--json", o->json, "Also write the ranges as JSON {tensor: amax}")->needs(to)->writes("FILE");
  app.add_option("--header", o->header, "First line of the table: VERSION-ALGORITHM (default 100700-EntropyCalibration2)")
      ->needs(to)
      ->type_name("TEXT");
  app.add_flag("--approximate", o->approximate,
               "Needed for models with uint8 activations: replace what a table cannot hold (zero points, scales per axis, two "
               "scales of one tensor) by a "
               "symmetric range that covers it, and list each")
      ->needs(to);
  auto* from = app.add_option("--from-table", o->from_table,
                              "Put Q/DQ pairs into a float model, with the ranges of this file (a calibration table, or JSON)")
                   ->excludes(to)
                   ->reads("FILE");
  app.add_option("--qdq-model", o->qdq_model, "The model to write")->needs(from)->writes("FILE");
  app.add_option("--placement", o->placement, "Tensors that get pairs: inputs, residual (default) or outputs (docs/tables.md)")
      ->needs(from)
      ->type_name("NAME");
  app.footer(
      "Examples: octavo convert qdq.onnx --to-table ranges.cache --float-model float.onnx --approximate\n"
      "          octavo convert float.onnx --from-table ranges.cache --qdq-model qdq.onnx");
  return [=]() -> Result<int> {
    if (!o->to_table.empty()) return to_table(*o);
    if (!o->from_table.empty()) return from_table(*o);
    return fail(ErrorKind::usage, "convert: give either --to-table or --from-table\n  see: octavo convert --help");
  };
}

}  // namespace octavo::cli
