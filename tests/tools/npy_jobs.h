// Jobs of tools behind tests/onnx/*.py: an ONNX model, a prefix for outputs, and .npy files for inputs.
//   model, output prefix, then name=file.npy for each input, tab-separated; a field "most:NAME=N" is a bound of sizes that data decide
//   (ImportOptions::max_elements). Shapes of symbolic inputs are those of the arrays.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ir/output_sizes.h"
#include "onnx/import/import.h"

namespace octavo::tools {

using ir::DType;
using ir::Tensor;

inline constexpr std::pair<DType, std::string_view> kNpyTypes[] = {
    {DType::f32, "<f4"}, {DType::f16, "<f2"}, {DType::f64, "<f8"},     {DType::s8, "|i1"},
    {DType::u8, "|u1"},  {DType::s16, "<i2"}, {DType::u16, "<u2"},     {DType::s32, "<i4"},
    {DType::u32, "<u4"}, {DType::s64, "<i8"}, {DType::boolean, "|b1"}, {DType::u64, "<u8"},
};

/// numpy's format 1.0, C order.
inline Result<Tensor> read_npy(const std::string& path) {
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

inline Status write_npy(const std::string& path, const Tensor& t) {
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

/// The model of a job and its inputs, in the order of the graph's.
struct Job {
  onnx::Model model;
  std::vector<Tensor> feeds;
};

inline Result<Job> open_job(const std::vector<std::string>& fields) {
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
  Job job{std::move(model), {}};
  for (const ir::ValueId v : job.model.graph.inputs) {
    const std::string& name = job.model.graph.value(v).name;
    if (!arrays.contains(name)) return fail(ErrorKind::bad_input, "no array for input " + name);
    if (arrays[name].type() != job.model.graph.type(v)) {
      return fail(ErrorKind::bad_input, fmt::format("input {} is {}, the array {}", name, ir::to_string(job.model.graph.type(v)),
                                                    ir::to_string(arrays[name].type())));
    }
    job.feeds.push_back(arrays[name]);
  }
  return job;
}

/// What the reference evaluator or an engine gave for all outputs of a graph becomes the results of the model.
inline Status cut(std::vector<Tensor>& results, const ir::Graph& graph) {
  std::vector<std::int64_t> counts;
  const std::size_t shown = ir::shown_outputs(results.size(), graph.sizes);
  for (std::size_t i = shown; i < results.size(); ++i) counts.push_back(results[i].data<std::int64_t>()[0]);
  OCTAVO_CHECK(
      ir::within_bounds(graph.sizes, shown, counts, [&](std::size_t i) -> const std::string& { return graph.output_names[i]; }));
  ir::cut_results(results, graph.sizes);
  return {};
}

/// Runs a job a line and prints a line for each: what `run` gives, or "error <kind number> <text on one line>".
inline int batch(const std::string& path, const std::function<Result<std::string>(const std::vector<std::string>& fields)>& run) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, '\t');) fields.push_back(field);
    if (fields.size() < 2) continue;
    const auto done = run(fields);
    if (done) {
      std::cout << *done << std::endl;
    } else {
      std::string text = done.error().message;
      std::replace(text.begin(), text.end(), '\n', '|');
      std::cout << "error " << exit_code(done.error().kind) << " " << text << std::endl;
    }
  }
  return 0;
}

}  // namespace octavo::tools
