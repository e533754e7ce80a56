// Instances of standard templates that tests share with the libraries. The code of tests is not
// optimised, and of a function that several objects have the linker takes the first: without these,
// the libraries would run the tests' slow strings and maps. So this object comes first.
#include <map>
#include <string>
#include <vector>

template class std::basic_string<char>;
template class std::vector<std::string>;
template class std::map<std::string, std::string>;
template class std::map<std::string, std::string, std::less<>>;
