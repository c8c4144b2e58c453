# frozen_string_literal: true

module Penstock
  module MessagePack
    # Group: data cannot be unpacked. What ends too early is an EOFError instead, as more of it may come.
    class UnpackError < Error; end

    # Data that is no MessagePack, or has more behind the object that was asked for.
    class MalformedFormatError < UnpackError; end

    # Nested more deeply than `max_depth`; in packing also than the thread's stack allows, as an object is that contains itself.
    class StackError < UnpackError; end

    # More values in one object than `max_elements`, or a String or payload longer than `max_bytes`.
    class LimitError < UnpackError; end

    # An ext type that nothing is registered for. {Unpacker#initialize}'s `allow_unknown_ext` gives an {ExtensionValue} instead.
    class UnknownExtTypeError < UnpackError; end

    # In every error that says "an object of another kind".
    module TypeError; end

    # The next object is none whose header was asked for.
    class UnexpectedTypeError < UnpackError
      include TypeError
    end
  end
end
