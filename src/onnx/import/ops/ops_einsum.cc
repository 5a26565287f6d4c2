// Einsum: operands are brought to one letter a dimension, then multiplied from the left. A letter that only one operand has and the
// result has not is summed first; two operands that share a summed letter are a batched matrix product.
#include <algorithm>
#include <array>

#include "onnx/import/compose.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

/// A value with one letter a dimension, all different. Dimensions under "..." have the letters '\x01', '\x02', ... from the right.
struct Labelled {
  ValueId value;
  std::string letters;
};

bool has(const std::string& letters, char c) {
  return letters.find(c) != std::string::npos;
}

struct Term {
  std::string before, after;  ///< around the ellipsis
  bool ellipsis = false;
};

Result<std::vector<Term>> parse_terms(NodeContext& n, const std::string& text) {
  std::vector<Term> terms(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    Term& t = terms.back();
    if (text[i] == ' ') continue;
    if (text[i] == ',') {
      terms.emplace_back();
    } else if (text.compare(i, 3, "...") == 0 && !t.ellipsis) {
      t.ellipsis = true;
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      (t.ellipsis ? t.after : t.before) += text[i];
    } else {
      return n.bad("equation \"{}\" has an unexpected '{}'", text, text[i]);
    }
  }
  return terms;
}

/// The letters of an operand of this rank.
Result<std::string> letters_of(NodeContext& n, const Term& t, std::size_t rank) {
  const std::size_t named = t.before.size() + t.after.size();
  if (named > rank || (!t.ellipsis && named != rank)) return n.bad("a term names {} dimensions, its operand has {}", named, rank);
  std::string out = t.before;
  for (std::size_t k = rank - named; k > 0; --k) out += static_cast<char>(k);
  return out + t.after;
}

/// A letter that stands twice takes the diagonal.
Labelled distinct(Compose& c, Labelled x) {
  for (std::size_t i = 0; c.ok() && i < x.letters.size(); ++i) {
    const std::size_t j = x.letters.find(x.letters[i], i + 1);
    if (j == std::string::npos) continue;
    Ints perm;
    std::string letters;
    for (std::size_t d = 0; d < x.letters.size(); ++d) {
      if (d == i || d == j) continue;
      perm.push_back(static_cast<std::int64_t>(d));
      letters += x.letters[d];
    }
    perm.push_back(static_cast<std::int64_t>(i));
    perm.push_back(static_cast<std::int64_t>(j));
    ValueId v = c.transpose(x.value, perm);
    Shape s = c.shape(v);
    const std::int64_t extent = s.back();
    s.pop_back();
    s.back() = extent * extent;
    v = c.slice(c.reshape(v, s), static_cast<std::int64_t>(s.size()) - 1, 0, extent * extent, extent + 1);
    return distinct(c, {v, letters + x.letters[i]});
  }
  return x;
}

/// Sums away every letter that is not in `keep`.
Labelled sum_others(Compose& c, const Labelled& x, const std::string& keep) {
  Ints axes;
  std::string letters;
  for (std::size_t d = 0; d < x.letters.size(); ++d) {
    if (has(keep, x.letters[d])) {
      letters += x.letters[d];
    } else {
      axes.push_back(static_cast<std::int64_t>(d));
    }
  }
  return {c.reduce(Op::reduce_sum, x.value, axes, false), letters};
}

/// x with its dimensions in the order of `letters`, 1 where x has none.
ValueId arranged(Compose& c, const Labelled& x, const std::string& letters) {
  Ints perm;
  Shape shape;
  for (const char l : letters) {
    const std::size_t d = x.letters.find(l);
    if (d != std::string::npos) perm.push_back(static_cast<std::int64_t>(d));
    shape.push_back(d == std::string::npos || !c.ok() ? 1 : c.shape(x.value)[d]);
  }
  return c.reshape(c.transpose(x.value, perm), shape);
}

/// a * b with every letter not in `keep` summed.
Labelled product(Compose& c, Labelled a, Labelled b, const std::string& keep) {
  a = sum_others(c, a, keep + b.letters);
  b = sum_others(c, b, keep + a.letters);
  std::string batch, left, right, inner;
  for (const char l : a.letters) (has(b.letters, l) ? (has(keep, l) ? batch : inner) : left) += l;
  for (const char l : b.letters) {
    if (!has(a.letters, l)) right += l;
  }
  if (inner.empty() || !c.ok()) {
    const std::string all = batch + left + right;
    return {c.mul(arranged(c, a, all), arranged(c, b, all)), all};
  }
  const auto extents = [&](const Labelled& x, const std::string& letters) {
    Shape s;
    for (const char l : letters) s.push_back(c.shape(x.value)[x.letters.find(l)]);
    return s;
  };
  const Shape sizes_a = extents(a, batch), sizes_b = extents(b, batch), l = extents(a, left), r = extents(b, right),
              k = extents(a, inner);
  if (k != extents(b, inner)) {  // a 1 that repeats: no matrix product
    const std::string all = batch + left + right + inner;
    return sum_others(c, {c.mul(arranged(c, a, all), arranged(c, b, all)), all}, keep);
  }
  Shape shape_a = sizes_a, shape_b = sizes_b;
  shape_a.insert(shape_a.end(), {ir::count(l), ir::count(k)});
  shape_b.insert(shape_b.end(), {ir::count(k), ir::count(r)});
  const ValueId y =
      c.matmul(c.reshape(arranged(c, a, batch + left + inner), shape_a), c.reshape(arranged(c, b, batch + inner + right), shape_b));
  if (!c.ok()) return a;
  Shape out = c.shape(y);
  out.resize(out.size() - 2);
  out.insert(out.end(), l.begin(), l.end());
  out.insert(out.end(), r.begin(), r.end());
  return {c.reshape(y, out), batch + left + right};
}

Status einsum(NodeContext& n) {
  Compose c(n);
  const std::string equation = n.attr_text("equation", "");
  const std::size_t arrow = equation.find("->");
  OCTAVO_TRY(const std::vector<Term> terms, parse_terms(n, equation.substr(0, arrow)));
  if (terms.size() != n.operands()) return n.bad("equation \"{}\" for {} operands", equation, n.operands());
  std::vector<Labelled> x;
  std::size_t dots = 0;
  std::map<char, int> times;
  std::map<char, std::int64_t> extent;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (!n.has(i)) return n.bad("input {} is missing", i);
    OCTAVO_TRY(const std::string letters, letters_of(n, terms[i], n.shape(i).size()));
    if (terms[i].ellipsis) dots = std::max(dots, letters.size() - terms[i].before.size() - terms[i].after.size());
    for (std::size_t d = 0; d < letters.size(); ++d) {
      ++times[letters[d]];
      std::int64_t& e = extent.try_emplace(letters[d], 1).first->second;
      const std::int64_t given = n.shape(i)[d];
      if (given != 1 && e != 1 && given != e) return n.bad("equation \"{}\": a letter stands for {} and {}", equation, e, given);
      if (given != 1) e = given;
    }
    x.push_back(distinct(c, {n.in(i), letters}));
  }
  std::string result;
  if (arrow == std::string::npos) {
    for (std::size_t k = dots; k > 0; --k) result += static_cast<char>(k);
    for (const auto& [letter, count] : times) {
      if (count == 1 && letter > 31) result += letter;
    }
  } else {
    OCTAVO_TRY(const std::vector<Term> out, parse_terms(n, equation.substr(arrow + 2)));
    if (out.size() != 1) return n.bad("equation \"{}\" has several results", equation);
    OCTAVO_TRY(result, letters_of(n, out[0], out[0].before.size() + out[0].after.size() + (out[0].ellipsis ? dots : 0)));
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (!times.contains(result[i]) || has(result.substr(0, i), result[i]))
      return n.bad("equation \"{}\": its result is not defined", equation);
  }
  Labelled y = x[0];
  for (std::size_t i = 1; i < x.size(); ++i) {
    std::string keep = result;
    for (std::size_t k = i + 1; k < x.size(); ++k) keep += x[k].letters;
    y = product(c, y, x[i], keep);
  }
  y = sum_others(c, y, result);
  Shape shape;
  for (const char l : result) shape.push_back(extent[l]);
  return c.finish(c.expand(arranged(c, y, result), shape));
}

constexpr std::array kEinsumRows{OpRow{"Einsum", "", 12, 0, 1, -1, einsum}};

}  // namespace

Family einsum_ops() {
  return kEinsumRows;
}

}  // namespace octavo::onnx
