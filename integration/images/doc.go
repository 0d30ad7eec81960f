// Package images makes container images for tests, on a machine that may have no registry to pull from: each is looked for, else pulled, else
// built of what this machine has, and loaded as an archive, without a builder and without a base image.
//
// The names of what is built hold a hash of its content, so that the next run finds it and builds nothing. Images that nobody has wanted
// for a day are removed when others of their name are loaded.
//
//	POINTSMAN_TEST_NATS_IMAGE       instead of nats:<the version in go.mod>
//	POINTSMAN_TEST_POSTGRES_IMAGE   instead of postgres:17-alpine
//	POINTSMAN_TEST_PGBOUNCER_IMAGE  instead of one that is built; its program has to be pgbouncer
//
// Where an image is named so and can neither be found nor pulled, that is an error.
package images
