// Engines of one model for several shapes of its inputs, or several values of inputs that decide shapes (region/bound_value.h): in one
// file, which holds equal constants once, and how a run finds its own among them.
//
// A file of several engines begins with the section `set`: JSON {"plans": [{"constants": [[buffer, section], ...]}, ...]}. The sections
// plan, summary, graph and build of engine k have the id k, the model is there once; constants are numbered from 0, and `section` says which of them is a plan's buffer.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "engine/engine.h"

namespace octavo::engine {

/// Engines in one file at most.
inline constexpr std::size_t kMostPlans = 256;

/// The sections of one file, taken apart into those of its engines. `name` is for messages. Errors: bad_engine.
[[nodiscard]] Result<std::vector<Part>> parts_of(std::span<const Section> sections, std::string_view name);

/// Writes one file for engines of one model, in the order of their inputs' shapes and values, whatever the order given: equal engines
/// give equal bytes. One engine gives what its `save` gives. `notes`: as there. Errors: usage for engines that differ in more than shapes
/// and values, or for two of the same; io.
[[nodiscard]] Status save_set(const std::string& path, Engines engines, const Notes& notes = {},
                              const std::string& private_key = {});

/// The same for engines that serve a range of shapes together: in the order given, with these sections beside them (kOpen, kOpenData).
[[nodiscard]] Status save_open(const std::string& path, const Engines& engines, std::span<const Section> open,
                               const Notes& notes = {}, const std::string& private_key = {});

/// Do these belong in one file? The fact that speaks against it; empty: yes.
[[nodiscard]] std::string why_no_set(const Engines& engines);

/// "x [8,3,224,224], k = 3": the shapes of a plan's inputs, and their values where it was made for one.
[[nodiscard]] std::string shapes_text(const region::Plan& plan);
/// The same of every engine (the first ten, and a count), a line each.
[[nodiscard]] std::string shapes_text(const Engines& engines);

/// What a run brings of some or all inputs.
struct Wanted {
  std::map<std::string, ir::Shape> shapes;
  /// Nothing where there is no value to read. May be empty.
  std::function<std::optional<ir::Tensor>(const std::string& input)> value;
};
/// Those that take these shapes and values, at least one. Errors: bad_input, naming the input, what it is, what there is, and the way out.
[[nodiscard]] Result<Engines> fitting(const Engines& engines, const Wanted& wanted);
/// The only one of them. Errors: as fitting; bad_input where several fit, naming them.
[[nodiscard]] Result<std::shared_ptr<const Engine>> choose(const Engines& engines, const Wanted& wanted);

}  // namespace octavo::engine
