// What a subcommand takes, declared: its options, and when they have an effect. arguments.cc alone knows the library that parses them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace octavo::cli {

/// A value that an option accepts.
template <class T>
struct Range {
  T min, max;
};
struct AtLeast {
  double min;
};
struct OneOf {
  std::vector<std::string> names;
};

/// What a command does with the file that an option names.
enum class FileUse { none, read, written, updated };  ///< updated: read, and written with what came of it

/// One option or positional argument; lives as long as its Arguments.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option* type_name(const std::string& name);
  Option* required();
  Option* group(const std::string& name);
  Option* delimiter(char c);
  Option* allow_extra_args(bool several);  ///< false: it takes one value each time
  Option* expected(int count);
  Option* expected(int least, int most);  ///< -1: any number
  Option* needs(Option* other);
  Option* excludes(Option* other);
  template <class T>
  Option* check(Range<T> range);
  Option* check(AtLeast least);
  Option* check(OneOf one);
  /// Its values name files (cli/own_inputs.h), `type` is the type's name, and an empty value is refused: the shell variable that should hold it is not set.
  Option* reads(const std::string& type);
  Option* writes(const std::string& type);
  Option* updates(const std::string& type);
  Option* use(FileUse use);  ///< only what is done with the file
  /// Changes what was given; the message where it cannot be.
  Option* transform(std::function<std::string(std::string&)> change);

  [[nodiscard]] std::string name() const;  ///< "--bind"
  [[nodiscard]] bool is(const std::string& name) const;
  [[nodiscard]] std::size_t count() const;  ///< how often it was given
  [[nodiscard]] std::vector<std::string> results() const;
  [[nodiscard]] bool flag() const;
  [[nodiscard]] FileUse use() const { return use_; }
  /// As --help lists it: "MODEL", where it also has a place, else its name.
  [[nodiscard]] std::string label() const;
  [[nodiscard]] bool takes_empty() const { return !refuses_empty_; }
  /// Every spelling.
  [[nodiscard]] std::vector<std::string> spellings() const;

 private:
  Option* file(const std::string& type, FileUse use);

  CLI::Option* option_;
  FileUse use_ = FileUse::none;
  bool refuses_empty_ = false;
};

inline constexpr const char* kEmptyValue =
    "the value is empty (a shell variable that is not set?)\n  name a file, or leave the option out";

/// Why an option has no effect beside the other arguments, as it was given ("--bind image=uint8"), and what to do instead; empty where it
/// has one. Asked after parsing.
using WhyNoEffect = std::function<std::string(const std::string& given)>;

/// Of one subcommand, or of the whole command.
class Arguments {
 public:
  Arguments(const std::string& name, const std::string& help);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  /// Names as "-o,--output", or "MODEL" by its place. T: text, a number, an optional one, or a list or set of text.
  template <class T>
  Option* add_option(const std::string& names, T& to, const std::string& help);
  template <class T>
  Option* add_option_function(const std::string& names, std::function<void(const T&)> take, const std::string& help);
  Option* add_flag(const std::string& names, bool& to, const std::string& help);
  void version(const std::string& flag, const std::string& text);
  Arguments* add_subcommand(const std::string& name, const std::string& help);
  void require_subcommand();
  void allow_extras();  ///< what is not known is passed over
  void footer(const std::string& text);

  /// One that was added.
  [[nodiscard]] Option* get_option(const std::string& name) const;
  [[nodiscard]] std::vector<Option*> options() const;
  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::vector<const Arguments*> subcommands() const;
  [[nodiscard]] bool parsed() const;  ///< the subcommand was called

  struct Condition {
    const Option* option = nullptr;
    WhyNoEffect why;
    bool note = false;  ///< said, and the command runs
  };
  std::vector<Condition> conditions;
  std::vector<std::function<void()>> arrangements;  ///< what settles the arguments after parsing

  /// What came of parsing.
  struct Outcome {
    enum class Kind { parsed, print, unknown, missing, wrong };
    Kind kind = Kind::parsed;
    std::string text;               ///< print: for stdout (--help, --version); otherwise what is wrong
    int code = 0;                   ///< print: the exit code
    std::vector<std::string> left;  ///< unknown, missing: arguments that nothing took
  };
  [[nodiscard]] Outcome parse(const std::vector<std::string>& arguments);

 private:
  explicit Arguments(std::shared_ptr<CLI::App> app);
  Option* keep(CLI::Option* option);

  std::shared_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::unique_ptr<Arguments>> subcommands_;
};

}  // namespace octavo::cli
