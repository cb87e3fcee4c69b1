// Package sdkoracle proves the scripted provider of package chaos by the vendors' own clients: what it streams, their
// SDKs decode, and what their SDKs send back, it accepts. The tests are the whole of it; nothing imports it.
package sdkoracle
