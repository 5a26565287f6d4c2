# What other C++ projects use: the shared library liboctavo.so, the static library liboctavo.a (all modules in one archive), the public
# header, a CMake package (find_package(Octavo)) and a pkg-config file. docs/cpp.md shows each.
#   cmake --install build/release --prefix DIR --component cpp
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The shared library exports what the public header declares and nothing else: the archives in it (protobuf, fmt) stay inside.
set(modules_of_api octavo_onnx_schema)
foreach(module ${modules})  # of the top CMakeLists.txt
  if(NOT module MATCHES "^(cli|python)$")
    list(APPEND modules_of_api octavo_${module})
  endif()
endforeach()
file(WRITE ${PROJECT_BINARY_DIR}/octavo_exports.map.new
     "{ global: _ZN6octavo*; _ZNK6octavo*; _ZTIN6octavo*; _ZTSN6octavo*; _ZTVN6octavo*; local: *; };\n")
file(COPY_FILE ${PROJECT_BINARY_DIR}/octavo_exports.map.new ${PROJECT_BINARY_DIR}/octavo_exports.map ONLY_IF_DIFFERENT)
file(WRITE ${PROJECT_BINARY_DIR}/shared.cc "// The shared library is made of the modules' archives.\n")
add_library(octavo_shared SHARED ${PROJECT_BINARY_DIR}/shared.cc)
target_link_libraries(octavo_shared PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,octavo_api>")
target_include_directories(octavo_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_compile_features(octavo_shared INTERFACE cxx_std_20)
target_link_options(octavo_shared PRIVATE "LINKER:--version-script=${PROJECT_BINARY_DIR}/octavo_exports.map" "LINKER:-z,defs")
set_target_properties(octavo_shared PROPERTIES OUTPUT_NAME octavo VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                      EXPORT_NAME octavo LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
                      LINK_DEPENDS ${PROJECT_BINARY_DIR}/octavo_exports.map)
if(OCTAVO_SANITIZE)
  set_target_properties(octavo_shared PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

# One archive of all modules: what depends on the link order stays among ourselves.
set(merge "create ${PROJECT_BINARY_DIR}/lib/liboctavo.a\n")
set(archives)
foreach(module ${modules_of_api})
  if(TARGET ${module})
    string(APPEND merge "addlib $<TARGET_FILE:${module}>\n")
    list(APPEND archives ${module})
  endif()
endforeach()
string(APPEND merge "save\nend\n")
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/merge_archives.mri CONTENT "${merge}")
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/lib/liboctavo.a
                   COMMAND ${CMAKE_COMMAND} -E rm -f ${PROJECT_BINARY_DIR}/lib/liboctavo.a
                   COMMAND sh -c "\"${CMAKE_AR}\" -M < \"${PROJECT_BINARY_DIR}/merge_archives.mri\""
                   DEPENDS ${archives} ${PROJECT_BINARY_DIR}/merge_archives.mri VERBATIM)
add_custom_target(octavo_static ALL DEPENDS ${PROJECT_BINARY_DIR}/lib/liboctavo.a)
add_custom_target(octavo_cpp DEPENDS ${PROJECT_BINARY_DIR}/lib/liboctavo.a)
add_dependencies(octavo_cpp octavo_shared octavo_command)
if(TARGET octavo_nvrtc)
  add_dependencies(octavo_cpp octavo_nvrtc)
  install(TARGETS octavo_nvrtc RUNTIME DESTINATION libexec/octavo COMPONENT cpp)  # device/compile_process.h says where it is looked for
endif()

# What the archive needs beside it, as linker words that hold on this machine.
set(needs -lfmt -lprotobuf-lite -lpthread -ldl)
get_target_property(of_cpu octavo_cpu LINK_LIBRARIES)
if("${of_cpu}" MATCHES "dnnl")
  list(APPEND needs -ldnnl -fopenmp)
endif()
get_target_property(of_engine octavo_engine LINK_LIBRARIES)
if("${of_engine}" MATCHES "OpenSSL")
  list(APPEND needs -lcrypto)
endif()
list(JOIN needs " " OCTAVO_PRIVATE_LIBS)

install(TARGETS octavo_shared EXPORT OctavoTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(FILES ${PROJECT_BINARY_DIR}/lib/liboctavo.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/octavo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
if(TARGET octavo_command)
  install(TARGETS octavo_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cpp)
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Octavo)
install(EXPORT OctavoTargets NAMESPACE octavo:: DESTINATION ${package_dir} COMPONENT cpp)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/OctavoConfig.cmake.in ${PROJECT_BINARY_DIR}/OctavoConfig.cmake
                              INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/OctavoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/OctavoConfig.cmake ${PROJECT_BINARY_DIR}/OctavoConfigVersion.cmake DESTINATION ${package_dir} COMPONENT cpp)
file(RELATIVE_PATH OCTAVO_PC_INCLUDE /${CMAKE_INSTALL_LIBDIR}/pkgconfig /${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/octavo.pc.in ${PROJECT_BINARY_DIR}/octavo.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/octavo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cpp)
