// REQUIRES: x && !(y || z)
// UNSUPPORTED: gcc-4, gcc-5
// RUN: %libomp-compile -DA && \
// RUN:   env A='x && y' %libomp-run | FileCheck %s
