// The program whose precompiled headers all test programs take (tests/CMakeLists.txt).
int main() {}
