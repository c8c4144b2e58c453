# frozen_string_literal: true

module Penstock
  module MessagePack
    # Group: data cannot be unpacked. Data that ends too early raises EOFError instead, as more of it may come.
    class UnpackError < Error; end

    # The data is not valid MessagePack, or more bytes follow the object.
    class MalformedFormatError < UnpackError; end

    # The object is nested more deeply than `max_depth`. Packing raises it also when the stack of the thread is too small,
    # for example for an object that contains itself.
    class StackError < UnpackError; end

    # An object has more values than `max_elements`, or a String or payload is longer than `max_bytes`.
    class LimitError < UnpackError; end

    # Nothing is registered for an ext type. With {Unpacker#initialize}'s `allow_unknown_ext` there is an {ExtensionValue}
    # instead.
    class UnknownExtTypeError < UnpackError; end

    # Included in every error about an object of an unexpected kind.
    module TypeError; end

    # The next object is not of the kind whose header was requested.
    class UnexpectedTypeError < UnpackError
      include TypeError
    end
  end
end
