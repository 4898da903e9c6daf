# Included by CMake inside llama.cpp's own project, before its targets exist.
include(${CMAKE_CURRENT_LIST_DIR}/no_amx.cmake)

# Its helper library is not used by edgespec.
set(LLAMA_BUILD_COMMON OFF)

# Some of llamafile's kernels are kept out: see engine_sgemm.cpp.
function(edgespec_choose_kernels)
    get_target_property(folder ggml-cpu SOURCE_DIR)
    set_property(SOURCE ${folder}/ggml-cpu/llamafile/sgemm.cpp TARGET_DIRECTORY ggml-cpu
                 APPEND PROPERTY COMPILE_DEFINITIONS llamafile_sgemm=llamafile_sgemm_any)
    target_sources(ggml-cpu PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/engine_sgemm.cpp)
endfunction()

# Sums over the cells of a KV cache do not depend on their order: see engine_sums.cpp.
function(edgespec_sum_in_any_order)
    get_target_property(folder ggml-cpu SOURCE_DIR)
    set_property(SOURCE ${folder}/ggml-cpu/vec.cpp TARGET_DIRECTORY ggml-cpu APPEND PROPERTY COMPILE_DEFINITIONS
                 ggml_vec_soft_max_f32=ggml_vec_soft_max_f32_any ggml_vec_dot_f16=ggml_vec_dot_f16_any)
    target_sources(ggml-cpu PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/engine_sums.cpp)
endfunction()
cmake_language(DEFER CALL edgespec_choose_kernels)
cmake_language(DEFER CALL edgespec_sum_in_any_order)
