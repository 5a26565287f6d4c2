// --input: pictures and arrays to feed a model.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/inputs/image.h"
#include "cli/inputs/model.h"
#include "cli/inputs/npy.h"
#include "cli/inputs/recipe.h"
#include "cli/inputs/sources.h"

namespace octavo::cli {

struct InputOptions {
  std::vector<std::string> inputs;
  RecipeOptions recipe;
  const std::vector<std::string>* data = nullptr;  ///< of commands that also read --data: pictures may be there
  bool go_on = false;  ///< a file of a folder, pattern or list that cannot be read is left out and named in Given::unreadable
};
void add_input_options(Arguments& app, InputOptions& options);

/// Everything named by --input: arrays by input name, read; and pictures for one input, of which the bytes are read and the first
/// ones decoded, so that mistakes show before a build.
struct Given {
  Arrays arrays;                  ///< several files for one input: one behind the other in dimension 0
  std::vector<std::string> rows;  ///< what to call each row of dimension 0 of arrays that came from several files; else empty
  std::string name;               ///< the file of the first array
  std::string picture_input;      ///< the input that takes pictures; empty: none
  std::vector<Source> pictures;
  bool go_on = false;             ///< as InputOptions say
  std::vector<Error> unreadable;  ///< files that were left out
};
/// Fails when a file cannot be read, names no input, has a type or shape that the input cannot take, or an input is left without
/// one; and for preprocessing options that say nothing.
[[nodiscard]] Result<Given> read_inputs(const InputOptions& options, const Declared& declared);
/// The same of arrays in memory, which `name` names in messages: by input, or the one array of the only input.
[[nodiscard]] Result<Given> given_arrays(Arrays arrays, bool by_input, const std::string& name, const Declared& declared);
/// Shapes that the arrays give to open dimensions of the model's inputs. `batch` > 0: their first dimension is that, instead of the
/// whole length.
[[nodiscard]] Shapes shapes_of(const Given& given, const Declared& declared, std::int64_t batch = 0);

/// One run's tensors, parallel to the plan's inputs, and what to call it.
struct Feed {
  std::string name;
  std::vector<ir::Tensor> tensors;
  std::vector<std::string> rows;    ///< of pictures, and of arrays from several files: what each used row of the batch is
  std::int64_t used = -1;           ///< rows of the batch that hold something, from the first; -1: all
  std::vector<Error> unreadable{};  ///< pictures that were left out, where the run goes on; `used` may be 0 then
};

/// The runs that the inputs make. Pictures fill the rows of a batch, one each; arrays that are longer than their input in dimension 0
/// are cut into runs. The last run may be short: its other rows are zeros. Pictures are decoded when their run comes.
class Feeds {
 public:
  /// `given` and `plan` must outlive it. Errors: types and shapes that do not fit the plan; those of the recipe.
  [[nodiscard]] static Result<Feeds> create(const Given& given, const RecipeOptions& options, const std::string& stored,
                                            const region::Plan& plan);
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] Result<Feed> at(std::size_t run) const;
  /// How pixels become numbers; meaningful when there are pictures.
  [[nodiscard]] const Preprocess& recipe() const { return recipe_; }

 private:
  Feeds() = default;
  [[nodiscard]] Status fill_pictures(std::size_t run, Feed& feed) const;

  const Given* given_ = nullptr;
  const region::Plan* plan_ = nullptr;
  std::vector<ir::Tensor> whole_;  ///< arrays in the plan's types; empty for the pictures' input
  Preprocess recipe_;
  std::size_t picture_slot_ = 0, count_ = 0;
  std::int64_t batch_ = 1;  ///< rows of a run
  std::int64_t total_ = 1;  ///< rows of all runs
};

/// All of them at once.
[[nodiscard]] Result<std::vector<Feed>> make_feeds(const Given& given, const RecipeOptions& options, const engine::Engine& engine);

}  // namespace octavo::cli
