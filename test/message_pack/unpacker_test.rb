# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"
require_relative "support/cases"

class MessagePackUnpackerTest < MessagePackTestCase
  # Documents with every kind of header, some nested, and their values.
  DOCUMENTS = [
    nil, true, 127, 128, 65_536, -129, (2**64) - 1, 1.5, "short", "x" * 40, "y" * 300, "\xFF".b * 300, [], {}, [1, [2, [3, []]]],
    { "key" => "value", "k" * 40 => [nil, { 1 => 2.5 }] }, [MessagePackCases.ext(5, "a"), MessagePackCases.ext(6, "b" * 300)],
    Array.new(20) { |i| { "i" => i, "text" => "é" * i } }, { [1, 2] => { { 3 => 4 } => 5 } }
  ].freeze

  def unpacker(...) = MP::Unpacker.new(...)

  def packed = DOCUMENTS.map { |document| MP.pack(document) }

  # The values that the unpacker can read by now.
  def read_all(unpacker)
    found = []
    loop { found << unpacker.read }
  rescue EOFError
    found
  end

  # ---- in pieces ----

  def test_a_document_cut_at_any_byte_is_read_when_the_rest_arrives
    DOCUMENTS.zip(packed) do |document, data|
      (0..data.bytesize).each do |cut|
        one = unpacker(allow_unknown_ext: true).feed(data.byteslice(0, cut))
        early = read_all(one)
        one.feed(data.byteslice(cut..))
        assert_same_value [document], early + read_all(one), "cut at #{cut} of #{hex(data[0, 20])}"
      end
    end
  end

  def test_each_document_fed_byte_by_byte_is_read_at_its_last_byte
    one = unpacker(allow_unknown_ext: true)
    DOCUMENTS.zip(packed) do |document, data|
      data[0..-2].each_char { |byte| assert_raises(EOFError) { one.feed(byte).read } }
      assert_same_value document, one.feed(data[-1]).read
    end
  end

  def test_documents_fed_in_pieces_of_any_size_give_the_same_values
    whole = packed.join
    (1..70).each do |size|
      one = unpacker(allow_unknown_ext: true)
      found = []
      (0...whole.bytesize).step(size) { |at| one.feed_each(whole.byteslice(at, size)) { |value| found << value } }
      assert_same_value DOCUMENTS, found, "pieces of #{size}"
    end
  end

  def test_a_skip_continues_over_several_feeds
    whole = packed.join
    [1, 2, 7, 100].each do |size|
      one = unpacker(allow_unknown_ext: true)
      skipped = 0
      (0...whole.bytesize).step(size) do |at|
        one.feed(whole.byteslice(at, size))
        loop { one.skip || (skipped += 1) }
      rescue EOFError
        nil
      end
      assert_equal DOCUMENTS.size, skipped, "pieces of #{size}"
    end
  end

  def test_a_fed_string_may_change_afterwards
    data = MP.pack(["x" * 1000, "y" * 10])
    expected = MP.unpack(data)
    fed = data.dup
    one = unpacker.feed(fed)
    fed.replace("z" * 2000)
    assert_equal expected, one.read
    pieces = [data.byteslice(0, 600), data.byteslice(600..)].map(&:dup)
    pieces.each { |piece| one.feed(piece) && piece.replace("z" * 600) }
    assert_equal expected, one.read
  end

  def test_feed_accepts_only_strings
    [nil, 5, :a, ["a"]].each { |value| assert_raises(TypeError) { unpacker.feed(value) } }
    one = unpacker
    assert_same one, one.feed("\x01")
    assert_same one, one.feed_reference("\x02")
    assert_equal [1, 2], one.each.to_a
  end

  def test_feed_treats_strings_of_every_encoding_as_bytes
    data = MP.pack(["é", 200])
    %w[UTF-8 UTF-16LE US-ASCII BINARY].each { |name| assert_equal ["é", 200], unpacker.feed(data.dup.force_encoding(name)).read }
  end

  def test_deep_documents_can_be_fed_byte_by_byte
    [100, 1_000].each do |levels|
      one = unpacker(max_depth: 1_000)
      found = []
      ("\x91".b * levels).each_char { |byte| one.feed_each(byte) { flunk } }
      one.feed_each("\x05") { |value| found << value }
      assert_equal [nested_arrays(levels, 5)], found
    end
  end

  # ---- each ----

  def test_each_yields_complete_values_and_keeps_the_rest
    one = unpacker.feed("\x01\xA1a\x92\x05")
    found = []
    one.each { |value| found << value }
    assert_equal [1, "a"], found
    one.feed("\x06").each { |value| found << value }
    assert_equal [1, "a", [5, 6]], found
  end

  def test_each_without_a_block_returns_an_enumerator
    assert_kind_of Enumerator, unpacker.each
    assert_equal [1, 2], unpacker.feed("\x01\x02").each.to_a
    one = unpacker
    assert_kind_of Enumerator, one.feed_each("\x01")
    assert_equal [1, 2, 3], one.feed_each("\x01\x02\x03").to_a
  end

  def test_a_break_out_of_each_keeps_the_following_values
    one = unpacker.feed("\x01\x02\x03")
    assert_equal :found, one.each { |value| break :found if value == 2 }
    assert_equal 3, one.read
  end

  def test_an_error_out_of_each_keeps_the_following_values
    one = unpacker.feed("\x01\x02\x03")
    assert_raises(KeyError) { one.each { |value| raise KeyError if value == 1 } }
    assert_equal [2, 3], one.each.to_a
  end

  # ---- skip and headers ----

  def test_skip_skips_one_value_of_any_kind
    packed.each do |data|
      one = unpacker.feed("#{data}\x05".b)
      one.skip
      assert_equal 5, one.read
    end
  end

  def test_skip_nil_skips_only_a_nil
    one = unpacker.feed("\xC0\x01\xC0".b)
    assert_equal [true, false, 1, true], [one.skip_nil, one.skip_nil, one.read, one.skip_nil]
    assert_raises(EOFError) { one.skip_nil }
  end

  def test_reading_a_header_returns_the_size_and_leaves_the_elements
    { "93" => 3, "dc0003" => 3, "dd00000003" => 3, "ddffffffff" => (2**32) - 1 }.each do |header, size|
      one = unpacker.feed(bytes("#{header}0102"))
      assert_equal [size, 1, 2], [one.read_array_header, one.read, one.read]
    end
    { "82" => 2, "de0002" => 2, "df00000002" => 2 }.each do |header, size|
      one = unpacker.feed(bytes("#{header}01a161"))
      assert_equal [size, 1, "a"], [one.read_map_header, one.read, one.read]
    end
  end

  def test_reading_a_header_of_another_kind_raises_and_leaves_the_value
    [["read_map_header", "9101", [1]], ["read_array_header", "810102", { 1 => 2 }], ["read_array_header", "05", 5],
     %w[read_map_header a161 a]].each do |method, data, value|
      one = unpacker.feed(bytes(data))
      error = assert_raises(MP::UnexpectedTypeError) { one.public_send(method) }
      assert_kind_of MP::TypeError, error
      assert_equal value, one.read
    end
  end

  def test_a_header_fed_in_pieces_is_read_when_it_is_complete
    one = unpacker
    %w[dd 00 00 00].each { |byte| assert_raises(EOFError) { one.feed(bytes(byte)).read_array_header } }
    assert_equal 2, one.feed(bytes("02")).read_array_header
  end

  def test_headers_and_skip_nil_are_rejected_in_the_middle_of_an_object
    one = unpacker.feed("\x93")
    assert_raises(EOFError) { one.read }
    assert_raises(MP::UnexpectedTypeError) { one.feed("\x91\x05").read_array_header }
    assert_raises(EOFError) { one.read }
    assert_equal false, one.feed("\xC0").skip_nil
    assert_equal [[5], nil, true], one.feed("\xC3").read
  end

  def test_an_unfinished_skip_is_finished_before_anything_else
    { read: ["\x05", 5], skip_nil: ["\x05", false], read_array_header: ["\x92", 2], read_map_header: ["\x82", 2] }
      .each do |method, (data, expected)|
      one = unpacker.feed("\x92\x01")
      assert_raises(EOFError) { one.skip }
      assert_equal expected, one.feed("\xC0".b + data.b).public_send(method), method
    end
  end

  def test_a_skip_that_fails_is_discarded
    one = unpacker.feed("\x93\x01\xC1\x05\x06".b)
    assert_raises(MP::MalformedFormatError) { one.skip }
    assert_equal [5, 6], [one.read, one.read]
  end

  # The unpacker keeps 170,000 values of the object. Copying them at each feed took 500 times as long.
  def test_feeding_costs_no_more_when_much_of_the_object_is_kept
    level = "\xDE\x03\xE8".b + ((0...850).map { |i| MP.pack(i) + "\xC0".b }.join << "\x01")
    costs = [100, 1].map do |levels|
      one = unpacker.feed(level * levels)
      one.each { flunk }
      Array.new(5) { cpu { 50.times { one.feed("\xC0").each { flunk } } } }.min
    end
    assert_operator costs[0], :<, costs[1] * 20
  end

  def cpu
    started = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    yield
    Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - started
  end

  # ---- exactly one document ----

  def test_full_unpack_reads_one_document_and_resets
    one = unpacker.feed("\x01")
    assert_equal 1, one.full_unpack
    assert_equal 5, one.feed("\x05").read
  end

  def test_bytes_after_the_document_are_malformed
    [-> { MP.unpack("\x01\x02") }, -> { MP.load(StringIO.new("\x01\x02")) }, -> { unpacker.feed("\x01\x02").full_unpack },
     -> { MP.unpack("\x90\xC1") }].each { |call| assert_raises(MP::MalformedFormatError, &call) }
  end

  def test_a_document_truncated_at_any_byte_raises_eof_error
    packed.each do |data|
      (0...data.bytesize).each { |size| assert_raises(EOFError) { MP.unpack(data.byteslice(0, size), allow_unknown_ext: true) } }
    end
  end

  def test_reset_discards_fed_bytes_and_unfinished_objects
    one = unpacker.feed("\x93\x01")
    assert_raises(EOFError) { one.read }
    one.reset
    assert_raises(EOFError) { one.read }
    assert_equal 7, one.feed("\x07").read
  end

  def test_an_unpacker_cannot_be_initialized_twice
    one = unpacker(max_depth: 1000).feed("\x91".b * 500)
    assert_raises(EOFError) { one.read }
    assert_raises(RuntimeError) { one.send(:initialize, { max_depth: 5 }) }
    assert_equal nested_arrays(500), one.feed("\x01").read
  end

  def test_a_malformed_byte_discards_the_unfinished_object
    one = unpacker.feed("\x92\x01\xC1\x05")
    assert_raises(MP::MalformedFormatError) { one.read }
    assert_equal 5, one.read
  end

  def test_a_registered_unpacker_that_raises_discards_the_unfinished_object
    one = unpacker
    one.register_type(5) { |_| raise KeyError }
    one.feed_each("\x93\x01") { flunk }
    one.feed("\x91\xD4\x05a\x07".b)
    assert_raises(KeyError) { one.read }
    assert_equal 7, one.read
  end

  # ---- the resulting objects ----

  def test_string_keys_are_frozen_and_shared
    first, second = Array.new(2) { MP.unpack(MP.pack({ "the same key" => "value" })) }
    assert_same first.keys[0], second.keys[0]
    assert_predicate first.keys[0], :frozen?
    refute_predicate first["the same key"], :frozen?
  end

  def test_the_last_of_equal_keys_wins
    assert_equal({ "a" => 2 }, MP.unpack(bytes("82a16101a16102")))
    assert_equal({ 1 => 3, 2 => 2 }, MP.unpack(bytes("83 0101 0202 0103")))
  end

  def test_symbolize_keys_symbolizes_string_keys_at_every_level
    data = MP.pack({ "a" => [{ "é" => 1 }], 5 => "a", nil => { "b" => "c" } })
    assert_equal({ a: [{ é: 1 }], 5 => "a", nil => { b: "c" } }, MP.unpack(data, symbolize_keys: true))
    assert_predicate unpacker(symbolize_keys: true), :symbolize_keys?
  end

  def test_freeze_freezes_all_values_and_deduplicates_strings
    value = MP.unpack(MP.pack(["text", { "a" => ["text", [], {}, "b".b] }]), freeze: true)
    all = [value, value[1], value[1]["a"], *value[1]["a"], value[0]]
    assert all.all?(&:frozen?), all.map(&:frozen?).inspect
    assert_same value[0], value[1]["a"][0]
    assert Ractor.shareable?(value)
    assert_predicate unpacker(freeze: true), :freeze?
  end

  def test_with_a_key_cache_keys_are_the_same_as_without
    maps = Array.new(300) { |i| { "shared" => i, "key #{i % 40}" => i, "é" => 1, "k" * 300 => 2, "" => 3, i => 4 } }
    [{}, { symbolize_keys: true }, { freeze: true }].each do |options|
      plain = MP.unpack(MP.pack(maps), **options)
      assert_same_value plain, MP.unpack(MP.pack(maps), key_cache: true, **options)
    end
  end

  def test_options_are_a_hash_or_keywords_and_unknown_ones_are_rejected
    hash = { symbolize_keys: true }
    [unpacker(hash), unpacker(**hash), unpacker(nil, hash), unpacker(StringIO.new, hash), unpacker(StringIO.new, **hash)]
      .each { |one| assert_predicate one, :symbolize_keys? }
    [-> { unpacker(symbolise: true) }, -> { MP.unpack("\x01", symbolise: true) }, -> { MP.load("\x01", { symbolise: true }) }]
      .each { |call| assert_match(/symbolise\b.*symbolize_keys/m, assert_raises(ArgumentError, &call).message) }
  end

  def test_option_names_must_be_symbols
    [-> { MP.unpack("\x01", 5) }, -> { unpacker(nil, 5) }].each { |call| assert_raises(TypeError, &call) }
    assert_match(/unknown/, assert_raises(ArgumentError) { MP.unpack("\x01", { "freeze" => true }) }.message)
  end

  def test_limits_are_integers_or_nil_and_no_less_than_one
    { max_depth: 2**32, max_bytes: 2**32, max_elements: 2**63 }.each do |option, too_large|
      [-1, 0, too_large].each { |number| assert_raises(ArgumentError, option.to_s) { unpacker(option => number) } }
      ["1", 1.5, :a].each { |wrong| assert_raises(TypeError, option.to_s) { unpacker(option => wrong) } }
      assert_equal [1], unpacker(option => nil).feed("\x91\x01").read
    end
  end

  def test_an_uninitialized_unpacker_raises
    { feed: ["\x01"], read: [], skip: [], each: [], reset: [], register_type: [1], buffer: [], freeze?: [] }
      .each do |method, arguments|
      error = assert_raises(ArgumentError, method.to_s) { MP::Unpacker.allocate.public_send(method, *arguments) { flunk } }
      assert_match(/initialized/, error.message)
    end
  end

  def test_an_unpacker_cannot_be_copied
    %i[dup clone].each { |method| assert_raises(NoMethodError, TypeError) { unpacker.public_send(method) } }
  end

  # ---- an unpacker's own types ----

  def test_register_type_accepts_a_block_or_a_class_and_a_method_name
    by_block = unpacker
    by_block.register_type(5) { |data| data * 2 }
    assert_equal "abab", by_block.feed(bytes("d5056162")).read
    by_name = unpacker
    by_name.register_type(5, Regexp, :new)
    assert_equal(/ab/n.source, by_name.feed(bytes("d5056162")).read.source)
    assert by_name.type_registered?(5)
    refute by_name.type_registered?(6)
    assert_equal [5], by_name.registered_types.map { |type| type[:type] }
  end

  def test_a_frozen_unpacker_rejects_types
    assert_raises(FrozenError) { unpacker.freeze.register_type(5) { |data| data } }
  end

  def test_registered_unpackers_may_not_change_the_types_or_the_buffer
    [->(one) { one.register_type(6) { |data| data } }, ->(one) { one.buffer.skip(1) }, ->(one) { one.buffer.read(1) },
     ->(one) { one.buffer << "x" }, ->(one) { one.buffer.clear }].each do |change|
      one = unpacker
      one.register_type(5) { |_| change[one] }
      assert_raises(RuntimeError) { one.feed(bytes("d50561620102")).read }
      assert_equal [1, 2], [one.read, one.read]
    end
  end

  def test_registered_unpackers_may_not_use_the_unpacker
    { read: [], feed: ["\x01"], reset: [], each: [], skip: [], full_unpack: [] }.each do |method, arguments|
      one = unpacker
      one.register_type(5) { |_| one.public_send(method, *arguments) { |value| value } }
      error = assert_raises(StandardError, method.to_s) { one.feed(bytes("d50561620102")).read }
      refute_kind_of EOFError, error, method
      one.reset
      assert_equal 7, one.feed("\x07").read
    end
  end
end
