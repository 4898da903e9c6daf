# Included by CMake inside llama.cpp's own project: leave out its helper library, which edgespec does not use.
set(LLAMA_BUILD_COMMON OFF)
