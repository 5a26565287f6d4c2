// octavo_ref: ONNX + .npy inputs -> import -> reference evaluator -> .npy outputs. The tool behind tests/onnx/compare_ort.py.
//   octavo_ref --batch jobs.txt     one job a line, tab-separated: model, output prefix, then name=file.npy for each input; a field
//                                   "most:NAME=N" is a bound of sizes that data decide (ImportOptions::max_elements)
//   octavo_ref --print model.onnx   the imported graph as text, notes, absorbed nodes
//   octavo_ref --inputs model.onnx  names, types and shapes of the inputs
// A job prints one line: "ok <n outputs>" or "error <kind number> <text on one line>". Outputs go to <prefix>0.npy, <prefix>1.npy,
// ... Shapes of symbolic inputs are those of the arrays. With OCTAVO_REF_NORMALIZE=1 the graph is put into normal form first.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "ir/output_sizes.h"
#include "ir/text.h"
#include "onnx/import/import.h"
#include "quant/normal_form.h"
#include "reference/evaluate.h"

namespace octavo {
namespace {

using ir::DType;
using ir::Tensor;

constexpr std::pair<DType, std::string_view> kNpyTypes[] = {
    {DType::f32, "<f4"}, {DType::f16, "<f2"}, {DType::f64, "<f8"},     {DType::s8, "|i1"},
    {DType::u8, "|u1"},  {DType::s16, "<i2"}, {DType::u16, "<u2"},     {DType::s32, "<i4"},
    {DType::u32, "<u4"}, {DType::s64, "<i8"}, {DType::boolean, "|b1"}, {DType::u64, "<u8"},
};

/// numpy's format 1.0, C order.
Result<Tensor> read_npy(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[10] = {};
  in.read(magic, sizeof(magic));
  if (!in || std::memcmp(magic, "\x93NUMPY\x01", 7) != 0) return fail(ErrorKind::io, path + " is not a version 1 .npy file");
  std::string header(static_cast<unsigned char>(magic[8]) + 256U * static_cast<unsigned char>(magic[9]), ' ');
  in.read(header.data(), static_cast<std::streamsize>(header.size()));
  if (header.find("'fortran_order': True") != std::string::npos) return fail(ErrorKind::io, path + " is in Fortran order");
  const auto type = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes), [&](const auto& row) {
    return header.find(fmt::format("'{}'", row.second)) != std::string::npos;
  });
  if (type == std::end(kNpyTypes)) return fail(ErrorKind::io, path + ": element type not known: " + header);
  const std::size_t open = header.find("'shape': (") + 10;
  std::istringstream dims(header.substr(open, header.find(')', open) - open));
  ir::Shape shape;
  for (std::string item; std::getline(dims, item, ',');) {
    if (item.find_first_of("0123456789") != std::string::npos) shape.push_back(std::stoll(item));
  }
  Tensor out(type->first, shape);
  in.read(reinterpret_cast<char*>(out.mutable_bytes().data()), static_cast<std::streamsize>(out.bytes().size()));
  if (!in) return fail(ErrorKind::io, path + " ends early");
  return out;
}

Status write_npy(const std::string& path, const Tensor& t) {
  const auto type =
      std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes), [&](const auto& row) { return row.first == t.dtype(); });
  if (type == std::end(kNpyTypes)) return fail(ErrorKind::io, fmt::format("numpy has no type {}", ir::name_of(t.dtype())));
  std::string dims;
  for (const std::int64_t d : t.shape()) dims += std::to_string(d) + ",";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type->second, dims);
  header.append(63 - (header.size() + 10) % 64, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  const char magic[10] = {
      '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
  file.write(magic, sizeof(magic));
  file << header;
  file.write(reinterpret_cast<const char*>(t.bytes().data()), static_cast<std::streamsize>(t.bytes().size()));
  if (!file) return fail(ErrorKind::io, "writing " + path + " failed");
  return {};
}

Result<int> run_job(const std::vector<std::string>& fields) {
  std::map<std::string, Tensor> arrays;
  onnx::ImportOptions options;
  for (std::size_t i = 2; i < fields.size(); ++i) {
    const std::size_t equals = fields[i].rfind('=');
    if (equals == std::string::npos) return fail(ErrorKind::usage, "a job field is not name=file: " + fields[i]);
    if (fields[i].starts_with("most:")) {
      options.max_elements[fields[i].substr(5, equals - 5)] = std::atoll(fields[i].c_str() + equals + 1);
      continue;
    }
    OCTAVO_TRY(const Tensor t, read_npy(fields[i].substr(equals + 1)));
    arrays[fields[i].substr(0, equals)] = t;
    options.shapes[fields[i].substr(0, equals)] = t.shape();
  }
  OCTAVO_TRY(onnx::Model model, onnx::import_file(fields[0], options));
  if (std::getenv("OCTAVO_REF_NORMALIZE")) OCTAVO_CHECK(quant::normalize(model.graph));
  std::vector<Tensor> feeds;
  for (const ir::ValueId v : model.graph.inputs) {
    const std::string& name = model.graph.value(v).name;
    if (!arrays.contains(name)) return fail(ErrorKind::bad_input, "no array for input " + name);
    if (arrays[name].type() != model.graph.type(v)) {
      return fail(ErrorKind::bad_input, fmt::format("input {} is {}, the array {}", name, ir::to_string(model.graph.type(v)),
                                                    ir::to_string(arrays[name].type())));
    }
    feeds.push_back(arrays[name]);
  }
  OCTAVO_TRY(std::vector<Tensor> results, reference::evaluate(model.graph, feeds));
  std::vector<std::int64_t> counts;
  const std::size_t shown = ir::shown_outputs(results.size(), model.graph.sizes);
  for (std::size_t i = shown; i < results.size(); ++i) counts.push_back(results[i].data<std::int64_t>()[0]);
  OCTAVO_CHECK(ir::within_bounds(model.graph.sizes, shown, counts,
                                 [&](std::size_t i) -> const std::string& { return model.graph.output_names[i]; }));
  ir::cut_results(results, model.graph.sizes);
  for (std::size_t i = 0; i < results.size(); ++i) OCTAVO_CHECK(write_npy(fields[1] + std::to_string(i) + ".npy", results[i]));
  return static_cast<int>(results.size());
}

int batch(const std::string& path) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, '\t');) fields.push_back(field);
    if (fields.size() < 2) continue;
    const auto done = run_job(fields);
    if (done) {
      std::cout << "ok " << *done << std::endl;
    } else {
      std::string text = done.error().message;
      std::replace(text.begin(), text.end(), '\n', '|');
      std::cout << "error " << exit_code(done.error().kind) << " " << text << std::endl;
    }
  }
  return 0;
}

int report(const Error& error) {
  std::cerr << "error: " << error.message << "\n";
  return exit_code(error.kind);
}

int print(const std::string& path) {
  const auto model = onnx::import_file(path);
  if (!model) return report(model.error());
  std::cout << ir::print(model->graph, {.full_constants = false});
  for (const std::string& note : model->notes) std::cout << "# note: " << note << "\n";
  for (const auto& [node, why] : model->absorbed) std::cout << "# absorbed: " << node << ": " << why << "\n";
  return 0;
}

int inputs(const std::string& path) {
  const auto parsed = onnx::Parsed::file(path);
  if (!parsed) return report(parsed.error());
  const auto list = onnx::inputs_of(*parsed);
  if (!list) return report(list.error());
  for (const onnx::InputInfo& info : *list)
    std::cout << info.name << "\t" << ir::name_of(info.dtype) << "\t" << info.shape_text() << "\n";
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 2 && args[0] == "--batch") return octavo::batch(args[1]);
  if (args.size() == 2 && args[0] == "--print") return octavo::print(args[1]);
  if (args.size() == 2 && args[0] == "--inputs") return octavo::inputs(args[1]);
  std::cerr << "usage: octavo_ref --batch jobs.txt | --print model.onnx | --inputs model.onnx\n";
  return 2;
}
