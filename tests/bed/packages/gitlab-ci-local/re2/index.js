// Stands in for the package re2, so that no C++ is compiled for the test bed. The patterns of our own pipelines are as good
// for Node's engine.
module.exports = RegExp;
module.exports.default = RegExp;
