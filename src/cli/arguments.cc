#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>

namespace octavo::cli {
namespace {

/// Every value that is taken as this type is one: the library accepts "nan" and "inf" as numbers, within every range too, and makes large numbers
/// of negative ones where no sign is stored.
template <class T>
void check_numbers(CLI::Option& option) {
  constexpr bool real =
      std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>> || std::is_same_v<T, std::vector<double>>;
  const auto add = [&](auto why) {
    option.check(CLI::Validator([why](std::string& text) { return std::string(why(text)); }, "", ""));
  };
  if constexpr (real) {
    add([](const std::string& text) {
      double value = 0;
      return CLI::detail::lexical_cast(text, value) && !std::isfinite(value) ? "Value " + text + " is not a finite number" : "";
    });
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    add([](const std::string& text) {
      std::uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      return error == std::errc() && end == text.data() + text.size()
                 ? ""
                 : "Value " + text + " is not a whole number from 0 to 2^64 - 1";
    });
  }
}

}  // namespace

Option* Option::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}
Option* Option::required() {
  option_->required();
  return this;
}
Option* Option::group(const std::string& name) {
  option_->group(name);
  return this;
}
Option* Option::delimiter(char c) {
  option_->delimiter(c);
  return this;
}
Option* Option::allow_extra_args(bool several) {
  option_->allow_extra_args(several);
  return this;
}
Option* Option::expected(int count) {
  option_->expected(count);
  return this;
}
Option* Option::expected(int least, int most) {
  option_->expected(least, most);
  return this;
}
Option* Option::needs(Option* other) {
  option_->needs(other->option_);
  return this;
}
Option* Option::excludes(Option* other) {
  option_->excludes(other->option_);
  return this;
}
template <class T>
Option* Option::check(Range<T> range) {
  option_->check(CLI::Range(range.min, range.max));
  return this;
}
template Option* Option::check(Range<int>);
template Option* Option::check(Range<std::int64_t>);
template Option* Option::check(Range<double>);
Option* Option::check(AtLeast least) {
  const std::string range = fmt::format("{:g} or more", least.min);
  const auto why = [least, range](std::string& text) {
    double value = 0;
    return CLI::detail::lexical_cast(text, value) && value >= least.min ? std::string() : "Value " + text + " is not " + range;
  };
  option_->check(CLI::Validator(why, "FLOAT in [" + range + "]", ""));
  return this;
}
Option* Option::check(OneOf one) {
  option_->check(CLI::IsMember(std::move(one.names)));
  return this;
}
Option* Option::transform(std::function<std::string(std::string&)> change) {
  option_->transform(CLI::Validator(std::move(change), "", ""));
  return this;
}

Option* Option::file(const std::string& type, FileUse use) {
  option_->type_name(type);
  option_->check(CLI::Validator([](std::string& text) { return text.empty() ? std::string(kEmptyValue) : std::string(); }, "", ""));
  use_ = use, refuses_empty_ = true;
  return this;
}
Option* Option::reads(const std::string& type) {
  return file(type, FileUse::read);
}
Option* Option::writes(const std::string& type) {
  return file(type, FileUse::written);
}
Option* Option::updates(const std::string& type) {
  return file(type, FileUse::updated);
}
Option* Option::use(FileUse use) {
  use_ = use;
  return this;
}

std::string Option::name() const {
  return option_->get_name();
}
bool Option::is(const std::string& name) const {
  return option_->check_lname(name);
}
std::size_t Option::count() const {
  return option_->count();
}
std::vector<std::string> Option::results() const {
  return option_->results();
}
std::string Option::label() const {
  const std::string place = option_->get_name(true);
  return place.empty() ? name() : place;
}
bool Option::flag() const {
  return option_->get_items_expected_max() == 0;
}
std::vector<std::string> Option::spellings() const {
  std::vector<std::string> out;
  for (const std::string& name : option_->get_lnames()) out.push_back("--" + name);
  for (const std::string& name : option_->get_snames()) out.push_back("-" + name);
  return out;
}

Arguments::Arguments(const std::string& name, const std::string& help) : Arguments(std::make_shared<CLI::App>(help, name)) {}
Arguments::Arguments(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {
  if (CLI::Option* help = app_->get_help_ptr()) keep(help);
}
Arguments::~Arguments() = default;

Option* Arguments::keep(CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

template <class T>
Option* Arguments::add_option(const std::string& names, T& to, const std::string& help) {
  CLI::Option* option = app_->add_option(names, to, help);
  check_numbers<T>(*option);
  return keep(option);
}
template <class T>
Option* Arguments::add_option_function(const std::string& names, std::function<void(const T&)> take, const std::string& help) {
  CLI::Option* option = app_->add_option_function<T>(names, take, help);
  check_numbers<T>(*option);
  return keep(option);
}
template Option* Arguments::add_option(const std::string&, std::string&, const std::string&);
template Option* Arguments::add_option(const std::string&, int&, const std::string&);
template Option* Arguments::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* Arguments::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option* Arguments::add_option(const std::string&, double&, const std::string&);
template Option* Arguments::add_option(const std::string&, std::optional<double>&, const std::string&);
template Option* Arguments::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* Arguments::add_option(const std::string&, std::vector<double>&, const std::string&);
template Option* Arguments::add_option(const std::string&, std::set<std::string, std::less<>>&, const std::string&);
template Option* Arguments::add_option_function(const std::string&, std::function<void(const std::string&)>, const std::string&);
template Option* Arguments::add_option_function(const std::string&, std::function<void(const double&)>, const std::string&);

Option* Arguments::add_flag(const std::string& names, bool& to, const std::string& help) {
  return keep(app_->add_flag(names, to, help));
}

void Arguments::version(const std::string& flag, const std::string& text) {
  keep(app_->set_version_flag(flag, text));
}

Arguments* Arguments::add_subcommand(const std::string& name, const std::string& help) {
  auto sub = std::make_shared<CLI::App>(help, name);
  sub->footer(app_->get_footer());
  app_->add_subcommand(sub);
  subcommands_.push_back(std::unique_ptr<Arguments>(new Arguments(std::move(sub))));
  return subcommands_.back().get();
}

void Arguments::require_subcommand() {
  app_->require_subcommand(1);
}
void Arguments::allow_extras() {
  app_->allow_extras();
}
void Arguments::footer(const std::string& text) {
  app_->footer(text);
}

Option* Arguments::get_option(const std::string& name) const {
  const CLI::Option* wanted = app_->get_option(name);  // throws where there is none: a mistake of ours
  const auto found = std::find_if(options_.begin(), options_.end(), [&](const auto& o) { return o->name() == wanted->get_name(); });
  return found->get();
}

std::vector<Option*> Arguments::options() const {
  std::vector<Option*> out;
  for (const auto& option : options_) out.push_back(option.get());
  return out;
}

std::string Arguments::name() const {
  return app_->get_name();
}

std::vector<const Arguments*> Arguments::subcommands() const {
  std::vector<const Arguments*> out;
  for (const auto& sub : subcommands_) out.push_back(sub.get());
  return out;
}

bool Arguments::parsed() const {
  return app_->parsed();
}

Arguments::Outcome Arguments::parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"octavo"};
  for (const std::string& a : arguments) argv.push_back(a.c_str());
  Outcome out;
  try {
    app_->parse(static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;         // not to std::cout, which would flush, and lose why that fails
    out.code = app_->exit(e, text, text);
    out.kind = Outcome::Kind::print;
    out.text = text.str();
  } catch (const CLI::ParseError& e) {
    const bool extra = dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr;
    const bool missing = dynamic_cast<const CLI::RequiredError*>(&e) != nullptr;
    out.kind = extra ? Outcome::Kind::unknown : missing ? Outcome::Kind::missing : Outcome::Kind::wrong;
    out.text = e.what();
    if (extra || missing) out.left = app_->remaining(true);
  }
  return out;
}

}  // namespace octavo::cli
