# Included by CMake inside llama.cpp's own project, before its targets exist.

# AMX kernels are left out, whatever the compiler. GCC before 14 (and its updates 11.5, 12.4 and 13.3) tells the optimizer that
# _tile_loadconfig reads 8 of its 64 bytes (GCC PR 114098), so ldtilecfg faults on what is left of the stack: every program dies
# at its first matrix product. And AMX sums a wide pass in another order than a narrow one, which exact trees do not want.
include(CheckCXXCompilerFlag)
function(edgespec_leave_out_amx)
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
        return()
    endif()
    foreach(flag -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
        string(MAKE_C_IDENTIFIER "EDGESPEC_HAS${flag}" known)
        check_cxx_compiler_flag(${flag} ${known})
        if(${known})
            target_compile_options(ggml-cpu PRIVATE ${flag})  # after -march=native, which turned it on
        endif()
    endforeach()
endfunction()
cmake_language(DEFER CALL edgespec_leave_out_amx)
