// A program that links octavo_runtime and nothing else: runs an engine file on one raw input and writes the first output raw.
// usage: octavo_runtime_only ENGINE INPUT OUTPUT THREADS
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cpu/provider.h"
#include "engine/engine.h"

int main(int argc, char** argv) {
  using namespace octavo;
  if (argc != 5) return 2;
  const auto e = engine::Engine::load(argv[1], cpu::providers());
  if (!e) {
    std::fprintf(stderr, "%s\n", e.error().message.c_str());
    return exit_code(e.error().kind);
  }
  const auto context = engine::Context::create(*e, std::atoi(argv[4]));
  if (!context) return exit_code(context.error().kind);
  std::ifstream in(argv[2], std::ios::binary);
  const std::vector<char> x{std::istreambuf_iterator<char>(in), {}};
  const region::Plan& plan = (*e)->plan();
  const auto bytes_of = [](const region::Binding& b) {
    return static_cast<std::size_t>(ir::count(b.type.shape)) * ir::size_of(b.type.dtype);
  };
  if (plan.inputs.size() != 1 || x.size() != bytes_of(plan.inputs[0])) return 5;
  std::vector<std::vector<char>> y;
  std::vector<void*> out;
  for (const region::Binding& b : plan.outputs) {
    y.emplace_back(bytes_of(b));
    out.push_back(y.back().data());
  }
  const void* inputs[] = {x.data()};
  if (const Status status = (*context)->run(inputs, out); !status) return exit_code(status.error().kind);
  std::ofstream(argv[3], std::ios::binary).write(y[0].data(), static_cast<std::streamsize>(y[0].size()));
  return 0;
}
