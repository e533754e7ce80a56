// Instances of standard templates that tests share with the libraries. The code of tests is not
// optimised, and of a function that several objects have the linker takes the first: without these,
// the libraries would run the tests' slow strings and maps. So this object comes first.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

template class std::basic_string<char>;
template class std::vector<bool>;
template class std::vector<int>;
template class std::vector<std::int64_t>;
template class std::vector<std::size_t>;
template class std::vector<float>;
template class std::vector<double>;
template class std::vector<std::string>;
template class std::vector<std::vector<int>>;
template class std::set<int>;
template class std::set<std::string>;
template class std::map<int, int>;
template class std::map<std::string, int>;
template class std::map<std::string, std::string>;
template class std::map<std::string, std::string, std::less<>>;
