// The bodies of Asio's and Beast's functions: every other file sees declarations alone, which saves a sixth of its
// compilation. Debian's packages have no compiled library of them.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
