// By default a module's number comes from the folder that it lies in; counted, it is the same wherever this is built.

module.exports = { optimization: { moduleIds: "natural", chunkIds: "natural" } };
