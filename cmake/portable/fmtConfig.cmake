# {fmt} from its headers alone, for builds without a compiled one (cross-compiling). So with the other files here.
include(${CMAKE_CURRENT_LIST_DIR}/headers.cmake)
if(NOT TARGET fmt::fmt)
  add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
  target_include_directories(fmt::fmt SYSTEM INTERFACE ${portable_headers})
endif()
