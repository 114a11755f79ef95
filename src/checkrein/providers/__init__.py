"""Models that people run: one package per wire, and what the wires share.

A wire is made of three parts. `encode` turns a request into the body that is posted and `decode` turns the wire's events into chunks and one response; both are pure. A thin
`client` lends the provider's SDK as transport, with its retries off: the SDK opens a stream of bytes, and our decoder alone says what it means. The invariant: a response
leaves this room only when its stream came to the wire's own end; everything else is a `ModelError` from one table. Importing this package loads no SDK.
"""
