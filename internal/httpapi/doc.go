// Package httpapi answers the operations of package api over HTTP, and describes them as OpenAPI.
//
// A group of operations is a file, which registers them with [add]: a method and a path, the scope that a caller needs, and the method of
// [api.API] that does the work. Where the parts of its request come from follows from the type of the request: what the path names is
// there, what has a tag `http:"query,name"` or `http:"header,name"` is there, a field with `http:"body"` is the whole body, and of the rest
// a GET or DELETE has its query, anything else the JSON object in its body.
package httpapi
