# Installing: CMake config package, pkg-config file, soname.
