// Number the modules by counting. By default, a module's number depends on its folder, so bundles would differ between machines.

module.exports = { optimization: { moduleIds: "natural", chunkIds: "natural" } };
