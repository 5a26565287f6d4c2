// A struct of many containers is expensive to compile where it is copied or destroyed: each of its members' code is instantiated and optimized
// again in every such file. Structs that most files handle declare these members with OCTAVO_OUT_OF_LINE, and one source file defines
// them with OCTAVO_DEFINE_OUT_OF_LINE. Such a struct is no aggregate: it is made empty and filled, or has a constructor of its own.
#pragma once

#define OCTAVO_OUT_OF_LINE(Struct)      \
  Struct();                             \
  Struct(const Struct&);                \
  Struct(Struct&&) noexcept;            \
  Struct& operator=(const Struct&);     \
  Struct& operator=(Struct&&) noexcept; \
  ~Struct()

#define OCTAVO_DEFINE_OUT_OF_LINE(Struct)                 \
  Struct::Struct() = default;                             \
  Struct::Struct(const Struct&) = default;                \
  Struct::Struct(Struct&&) noexcept = default;            \
  Struct& Struct::operator=(const Struct&) = default;     \
  Struct& Struct::operator=(Struct&&) noexcept = default; \
  Struct::~Struct() = default
