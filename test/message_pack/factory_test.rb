# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"

class MessagePackFactoryTest < MessagePackTestCase
  class Money
    attr_reader :cents

    def self.from_msgpack_ext(payload) = new(payload.unpack1("q>"))
    def self.of_text(payload) = new(payload[1..].to_i)

    def initialize(cents) = @cents = cents
    def to_msgpack_ext = [@cents].pack("q>")
    def text = "#{@cents} ct"
    def ==(other) = other.is_a?(Money) && cents == other.cents
  end
  Dollars = Class.new(Money)
  Tree = Struct.new(:value, :children)
  module Tagged; end

  # Objects that have only `call`.
  class Writer
    def call(money) = "w#{money.cents}"
  end

  class Reader
    def call(payload) = Money.new(payload[1..].to_i)
  end

  def factory(*types, **options)
    MP::Factory.new.tap { |made| made.register_type(*types, **options) if types.any? }
  end

  def of_money(type = 1, **options) = factory(type, Money, **options)

  def round_trip(factory, value) = factory.load(factory.dump(value))

  # ---- packers and unpackers of a type ----

  def test_by_default_a_class_is_packed_by_its_msgpack_ext_methods
    assert_equal "d701#{hex([500].pack("q>"))}", hex(of_money.dump(Money.new(500)))
    assert_equal [Money.new(5), { "a" => Money.new(-1) }], round_trip(of_money, [Money.new(5), { "a" => Money.new(-1) }])
  end

  # Packers of Money.new(50), and the payloads that they make.
  PACKERS = {
    a_symbol: [:text, "50 ct"], a_string: ["text", "50 ct"], a_lambda: [->(money) { "l#{money.cents}" }, "l50"],
    a_proc: [proc { |money| "p#{money.cents}" }, "p50"], a_proc_of_a_symbol: [:text.to_proc, "50 ct"],
    a_method: [Writer.new.method(:call), "w50"], an_object_with_call: [Writer.new, "w50"]
  }.freeze
  # Unpackers of the payload "m7", and their values.
  UNPACKERS = {
    a_symbol: [:of_text, Money.new(7)], a_string: ["of_text", Money.new(7)], a_lambda: [->(data) { "l#{data}" }, "lm7"],
    a_proc: [proc { |data| "p#{data}" }, "pm7"], a_proc_of_a_symbol: [:upcase.to_proc, "M7"],
    a_method: [Reader.new.method(:call), Money.new(7)], an_object_with_call: [Reader.new, Money.new(7)]
  }.freeze

  PACKERS.each do |name, (packer, payload)|
    define_method("test_#{name}_packs") do
      assert_equal MP.pack(MP::ExtensionValue.new(1, payload)), of_money(packer:).dump(Money.new(50))
    end
  end

  UNPACKERS.each do |name, (unpacker, value)|
    define_method("test_#{name}_unpacks") do
      assert_equal value, of_money(unpacker:).load(bytes("d501 6d37"))
    end
  end

  def test_a_packer_or_unpacker_that_cannot_be_called_is_rejected
    [5, Object.new, [1]].each do |wrong|
      assert_raises(TypeError, ArgumentError, NoMethodError, wrong.inspect) { of_money(packer: wrong) }
      assert_raises(TypeError, ArgumentError, NoMethodError, wrong.inspect) { of_money(unpacker: wrong) }
    end
  end

  def test_a_packer_that_returns_no_string_raises_and_leaves_no_bytes
    [nil, 5, :a, [1]].each do |wrong|
      one = of_money(packer: ->(_) { wrong }).packer.write(1)
      assert_raises(TypeError, wrong.inspect) { one.write([1, Money.new(1)]) }
      assert_equal "\x01", one.to_s
    end
  end

  def test_an_unpacker_gets_the_payload_as_binary_and_may_return_anything
    seen = []
    made = of_money(unpacker: ->(data) { (seen << data) && nil })
    assert_nil made.load(bytes("d701") + ("\xFF" * 8).b)
    assert_equal [Encoding::BINARY, 8], [seen[0].encoding, seen[0].bytesize]
    assert_equal [nil, 5], made.load(bytes("92d4010005"))
  end

  def test_a_type_may_be_packed_only_or_unpacked_only
    writing = of_money(unpacker: nil)
    assert_raises(MP::UnknownExtTypeError) { round_trip(writing, Money.new(1)) }
    assert_equal MP::ExtensionValue.new(1, [1].pack("q>")), writing.load(writing.dump(Money.new(1)), allow_unknown_ext: true)
    reading = of_money(packer: nil)
    assert_raises(NoMethodError) { reading.dump(Money.new(1)) }
    assert_equal Money.new(1), reading.load(writing.dump(Money.new(1)))
  end

  def test_a_type_with_only_a_packer_or_an_unpacker_works_in_one_direction
    writing = of_money(packer: :text)
    assert_raises(MP::UnknownExtTypeError) { round_trip(writing, Money.new(1)) }
    reading = of_money(unpacker: :from_msgpack_ext)
    assert_raises(NoMethodError) { reading.dump(Money.new(1)) }
    refute reading.type_registered?(Money, :packer)
    refute writing.type_registered?(1, :unpacker)
  end

  def test_oversized_integers_require_a_packer
    [{}, { unpacker: MP::Bigint.method(:from_msgpack_ext) }].each do |options|
      error = assert_raises(ArgumentError) { factory(1, Integer, oversized_integer_extension_type: true, **options) }
      assert_match(/packer/, error.message)
    end
  end

  def test_options_that_are_not_a_hash_are_rejected
    [nil, :text].each { |options| assert_raises(TypeError) { MP::Factory.new.register_type(1, Money, options) } }
  end

  def test_anonymous_classes_modules_and_singleton_classes_can_be_registered
    named = Module.new
    made = MP::Factory.new
    made.register_type(1, Class.new(Money).tap { |klass| @klass = klass }, packer: ->(_) { "class" })
    made.register_type(2, named, packer: ->(_) { "module" })
    singleton = Object.new.extend(named)
    assert_equal %w[class class module], [@klass.new(1), Class.new(@klass).new(1), singleton].map { |one|
      MP.unpack(made.dump(one), allow_unknown_ext: true).payload
    }
    assert_raises(NoMethodError) { made.dump(Object.new) }
  end

  # ---- the registry ----

  def test_types_are_signed_bytes
    [-128, -2, 0, 127].each { |type| assert_equal Money.new(3), round_trip(of_money(type), Money.new(3)), type }
    [-129, 128, 2**70].each { |type| assert_raises(RangeError, ArgumentError, type.to_s) { of_money(type) } }
    ["1", nil].each { |type| assert_raises(TypeError, ArgumentError, type.inspect) { of_money(type) } }
  end

  def test_an_object_that_pretends_to_be_an_integer_is_rejected_as_a_type
    pretender = Object.new
    def pretender.is_a?(_) = true
    def pretender.between?(*) = true
    def pretender.to_int = 500_000_000
    [{ packer: nil, unpacker: :new }, { packer: :to_s, unpacker: nil }].each do |callables|
      assert_raises(TypeError) { MP::Factory.new.register_type(pretender, String, callables) }
    end
  end

  def test_all_types_may_be_registered_at_once_except_the_reserved_one
    made = MP::Factory.new
    (-128..126).each { |type| made.register_type(type, Class.new(Money), unpacker: ->(_) { type }) }
    assert_equal((-128..126).to_a, (-128..126).map { |type| made.load("\xD4".b + [type].pack("c") + "a".b) })
    assert_raises(ArgumentError) { made.register_type(127, Money) }
  end

  def test_other_objects_than_classes_and_unknown_options_are_rejected
    assert_raises(ArgumentError, TypeError) { factory(1, 5) }
    assert_raises(ArgumentError, TypeError) { factory(1, "Money") }
    assert_match(/packr/, assert_raises(ArgumentError) { of_money(packr: :text) }.message)
  end

  def test_registered_types_lists_packers_and_unpackers
    made = of_money(5, packer: :text, unpacker: :from_msgpack_ext)
    made.register_type(3, Tree, packer: :to_s, unpacker: nil)
    assert_equal [[3, Tree], [5, Money]], made.registered_types.map { |type| type.values_at(:type, :class) }.sort_by(&:first)
    assert_equal([3, 5], made.registered_types(:packer).map { |type| type[:type] }.sort)
    assert_equal([5], made.registered_types(:unpacker).map { |type| type[:type] })
    assert_equal %i[class packer type unpacker], made.registered_types.find { |type| type[:type] == 5 }.keys.sort
    assert_raises(ArgumentError) { made.registered_types(:neither) }
  end

  def test_type_registered_accepts_a_type_or_a_class
    made = of_money(5, unpacker: nil)
    assert made.type_registered?(5)
    assert made.type_registered?(Money)
    assert made.type_registered?(Money, :packer)
    refute made.type_registered?(6)
    refute made.type_registered?(Tree)
    assert_raises(ArgumentError) { made.type_registered?("Money") }
    assert_raises(ArgumentError) { made.type_registered?(5, :neither) }
  end

  def test_a_later_registration_of_a_type_replaces_the_earlier_one
    made = of_money(1, packer: ->(_) { "old" }, unpacker: ->(_) { :old })
    made.register_type(1, Money, packer: ->(_) { "new!" }, unpacker: ->(data) { data })
    assert_equal "new!", round_trip(made, Money.new(1))
  end

  # ---- which registration applies ----

  def test_a_subclass_is_packed_as_its_nearest_ancestor
    made = of_money(1, packer: ->(_) { "money" }, unpacker: ->(data) { data })
    assert_equal "money", round_trip(made, Dollars.new(1))
    made.register_type(2, Dollars, packer: ->(_) { "dollars" }, unpacker: ->(data) { data })
    assert_equal %w[dollars dollars money], round_trip(made, [Dollars.new(1), Class.new(Dollars).new(1), Money.new(1)])
  end

  def test_a_class_registered_after_a_lookup_is_used_from_then_on
    made = of_money(1, packer: ->(_) { "money" }, unpacker: ->(data) { data })
    3.times { assert_equal "money", round_trip(made, Dollars.new(1)) }
    made.register_type(2, Dollars, packer: ->(_) { "dollars" }, unpacker: ->(data) { data })
    assert_equal "dollars", round_trip(made, Dollars.new(1))
  end

  def test_a_registered_module_applies_to_including_classes_and_extended_objects
    made = factory(1, Tagged, packer: ->(_) { "tagged" }, unpacker: ->(data) { data })
    including = Class.new { include Tagged }
    assert_equal "tagged", round_trip(made, including.new)
    assert_equal "tagged", round_trip(made, Object.new.extend(Tagged))
    assert_raises(NoMethodError) { made.dump(Object.new) } # a lookup for one object must not apply to its class
  end

  def test_a_registered_singleton_class_applies_to_its_object
    one = Object.new
    made = factory(1, one.singleton_class, packer: ->(_) { "only me" }, unpacker: ->(data) { data })
    assert_equal "only me", round_trip(made, one)
    assert_raises(NoMethodError) { made.dump(Object.new) }
  end

  def test_core_classes_keep_their_own_formats_even_if_registered
    ["abc", [1], { 1 => 2 }, 5, 1.5, nil, true, false].each do |value|
      made = factory(1, value.class, packer: ->(_) { "ext" }, unpacker: ->(data) { data })
      assert_equal MP.pack(value), made.dump(value), value.class
    end
  end

  def test_subclasses_of_core_classes_are_looked_up_first
    [[String, "abc"], [Array, [1]], [Hash, { 1 => 2 }]].each do |base, content|
      sub = Class.new(base)
      value = sub.new.replace(content)
      made = factory(1, sub, packer: ->(_) { "ext" }, unpacker: ->(data) { data })
      assert_equal ["ext", content], round_trip(made, [value, content]), base
      made = factory(1, base, packer: ->(_) { "ext" }, unpacker: ->(data) { data })
      assert_equal "ext", round_trip(made, value), base
    end
  end

  # ---- Symbols ----

  def test_symbols_are_packed_as_strings_unless_registered
    assert_equal "a", round_trip(factory, :a)
    made = factory(0, Symbol)
    assert_equal "d40061", hex(made.dump(:a))
    assert_equal [:a, "a", { b: :c, "d" => nil }], round_trip(made, [:a, "a", { b: :c, "d" => nil }])
  end

  def test_symbols_of_any_encoding_round_trip
    symbols = [:a, :é, :"", :"a b", "あ".to_sym, :"a\0b"]
    [false, true].each do |optimized|
      made = factory(0, Symbol, optimized_symbols_parsing: optimized)
      assert_equal symbols, round_trip(made, symbols)
      assert_equal [Encoding::UTF_8, Encoding::US_ASCII], [round_trip(made, :é).encoding, round_trip(made, :a).encoding]
    end
  end

  def test_invalid_utf_8_is_not_unpacked_as_a_symbol
    [false, true].each do |optimized|
      made = factory(0, Symbol, optimized_symbols_parsing: optimized)
      error = assert_raises(MP::MalformedFormatError) { made.load("\xD5\x00\xFFa".b) }
      assert_match(/\AA Symbol's bytes .*UTF-8\.\z/, error.message)
    end
    ["\xFFa", "\xC3", "ab\xE2\x82"].each do |bytes|
      assert_raises(MP::MalformedFormatError) { MP.unpack(MP.pack({ bytes => 1 }), symbolize_keys: true) }
    end
    assert_equal({ "\xFFa" => 1 }, MP.unpack("\x81\xA2\xFFa\x01".b))
  end

  def test_a_custom_packer_for_symbols_is_used
    made = factory(0, Symbol, packer: ->(symbol) { symbol.to_s.upcase }, unpacker: ->(data) { data.downcase.to_sym })
    assert_equal "d40041", hex(made.dump(:a))
    assert_equal({ a: :b }, round_trip(made, { a: :b }))
  end

  # ---- Integers that are too large ----

  def test_oversized_integers_are_packed_if_their_type_enables_it
    made = factory(17, Integer, packer: MP::Bigint.method(:to_msgpack_ext), unpacker: MP::Bigint.method(:from_msgpack_ext),
                                oversized_integer_extension_type: true)
    numbers = [2**64, -(2**63) - 1, 2**100, -(2**200) + 12_345, 10**400, -(10**400)]
    assert_equal numbers, round_trip(made, numbers)
    [(2**64) - 1, -(2**63), 5].each { |number| assert_equal MP.pack(number), made.dump(number) }
    assert_equal({ 2**70 => 2**80 }, round_trip(made, { 2**70 => 2**80 }))
  end

  def test_oversized_integers_raise_by_default_and_only_integer_has_the_option
    made = factory(17, Integer, packer: MP::Bigint.method(:to_msgpack_ext), unpacker: MP::Bigint.method(:from_msgpack_ext))
    assert_raises(RangeError) { made.dump(2**64) }
    assert_raises(ArgumentError) { of_money(1, oversized_integer_extension_type: true) }
  end

  # ---- recursive types ----

  def of_trees
    factory(1, Tree, recursive: true, packer: ->(tree, packer) { packer.write(tree.value).write(tree.children) },
                     unpacker: ->(unpacker) { Tree.new(unpacker.read, unpacker.read) })
  end

  def test_a_recursive_type_may_contain_values_of_all_types
    tree = Tree.new(1, [Tree.new("two", []), Tree.new({ "x" => Tree.new(nil, nil) }, [Tree.new("z" * 70_000, [])])])
    assert_equal tree, round_trip(of_trees, tree)
    assert_equal [tree, { "k" => tree }], round_trip(of_trees, [tree, { "k" => tree }])
  end

  def test_a_recursive_type_can_be_fed_in_pieces
    tree = Tree.new(1, [Tree.new("two", [Tree.new(3, [])])])
    data = of_trees.dump([tree, 5])
    (0..data.bytesize).each do |cut|
      one = of_trees.unpacker.feed(data.byteslice(0, cut))
      found = []
      one.each { |value| found << value }
      one.feed_each(data.byteslice(cut..)) { |value| found << value }
      assert_equal [[tree, 5]], found, "cut at #{cut}"
    end
  end

  def test_a_recursive_unpacker_that_reads_too_little_or_too_much_affects_nothing_else
    [proc(&:read), ->(unpacker) { 5.times { unpacker.read } }].each do |greedy|
      made = factory(1, Tree, recursive: true, packer: ->(_, packer) { packer.write(1).write(2) }, unpacker: greedy)
      data = made.dump([Tree.new, "behind"])
      value = begin
        made.load(data)
      rescue MP::UnpackError, EOFError
        next
      end
      assert_equal "behind", value[1]
    end
  end

  def test_an_error_in_a_recursive_packer_discards_its_bytes
    made = factory(1, Tree, recursive: true, unpacker: nil, packer: ->(_, packer) { packer.write("half") && raise(KeyError) })
    one = made.packer.write(1)
    assert_raises(KeyError) { one.write([2, Tree.new]) }
    assert_equal "\x01\x02", one.write(2).to_s
  end

  # ---- existing packers, unpackers and copies are independent ----

  def test_later_registrations_do_not_affect_existing_packers_and_unpackers
    made = of_money
    packer = made.packer
    unpacker = made.unpacker
    made.register_type(2, Tree, packer: ->(_) { "t" }, unpacker: ->(_) { :tree })
    made.register_type(1, Money, packer: ->(_) { "new" }, unpacker: ->(_) { :new })
    assert_raises(NoMethodError) { packer.write(Tree.new) }
    data = packer.write(Money.new(5)).to_s
    assert_equal Money.new(5), unpacker.feed(data).read
    assert_raises(MP::UnknownExtTypeError) { unpacker.feed(bytes("d40274")).read }
  end

  def test_a_packers_own_registrations_do_not_affect_the_factory
    made = of_money
    made.packer.register_type(2, Tree) { |_| "t" }
    made.unpacker.register_type(2) { |_| :tree }
    refute made.type_registered?(2)
    assert_raises(NoMethodError) { made.packer.write(Tree.new) }
  end

  def test_a_copy_and_its_original_are_independent
    original = of_money
    copy = original.dup
    copy.register_type(2, Tree, packer: ->(_) { "t" }, unpacker: ->(_) { :tree })
    original.register_type(3, Range, packer: :to_s, unpacker: ->(data) { data })
    assert_equal [[1, 3], [1, 2]], [original, copy].map { |one| one.registered_types.map { |type| type[:type] }.sort }
    assert_equal :tree, round_trip(copy, Tree.new)
    assert_equal Money.new(1), round_trip(copy, Money.new(1))
  end

  def test_a_frozen_factory_works_without_new_types_and_its_copy_accepts_them
    frozen = of_money.freeze
    assert_predicate frozen, :frozen?
    assert_equal Money.new(1), round_trip(frozen, Money.new(1))
    assert_equal Money.new(1), frozen.unpacker.feed(frozen.packer.write(Money.new(1)).to_s).read
    assert_raises(FrozenError) { frozen.register_type(2, Tree) }
    copy = frozen.dup
    copy.register_type(2, Tree, packer: ->(_) { "t" }, unpacker: ->(_) { :tree })
    assert_equal :tree, round_trip(copy, Tree.new)
  end

  def test_the_default_factory_is_immutable_and_empty_and_the_error_says_what_to_do
    assert_predicate MP::DefaultFactory, :frozen?
    assert_empty MP::DefaultFactory.registered_types
    error = assert_raises(FrozenError) { MP::DefaultFactory.register_type(1, Money) }
    assert_match(/Factory/, error.message)
    assert_equal [1, "a"], round_trip(MP::DefaultFactory, [1, "a"])
  end

  def test_dump_and_load_accept_ios_and_options
    made = of_money
    io = StringIO.new
    assert_nil made.dump([Money.new(1), "a" * 40], io, compatibility_mode: true)
    io.rewind
    assert_equal [Money.new(1), "a" * 40], made.load(io)
    assert_equal({ a: Money.new(2) }, made.unpack(made.pack({ a: Money.new(2) }), symbolize_keys: true))
    assert_predicate made.packer(nil, { compatibility_mode: true }), :compatibility_mode?
    assert_predicate made.unpacker(symbolize_keys: true), :symbolize_keys?
  end
end
