# Included by CMake inside llama.cpp's own project, before its targets exist.

# Its helper library is not used by edgespec.
set(LLAMA_BUILD_COMMON OFF)

# Quantized products alone may take llamafile's kernels: see engine_sgemm.cpp.
set(EDGESPEC_SGEMM ${CMAKE_CURRENT_LIST_DIR}/engine_sgemm.cpp)
cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL edgespec_choose_kernels)
function(edgespec_choose_kernels)
    get_target_property(folder ggml-cpu SOURCE_DIR)
    set_property(SOURCE ${folder}/ggml-cpu/llamafile/sgemm.cpp TARGET_DIRECTORY ggml-cpu
                 APPEND PROPERTY COMPILE_DEFINITIONS llamafile_sgemm=llamafile_sgemm_any)
    target_sources(ggml-cpu PRIVATE ${EDGESPEC_SGEMM})
endfunction()
