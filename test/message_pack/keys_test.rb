# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"
require_relative "../support/gc_pressure"

# Keys of Hashes, which each Ractor caches.
class MessagePackKeysTest < MessagePackTestCase
  include GCPressure

  def setup
    super
    GC.stress = false # each test chooses when to collect
  end

  def unpacked_keys(packed, **options) = MP.unpack(packed, **options).keys

  # Keys of all sizes, and of each size several that differ in one byte.
  def test_similar_keys_are_not_mixed_up
    keys = (0..70).flat_map do |size|
      base = "k" * size
      [base, *Array.new(size) { |i| base.dup.tap { |key| key[i] = "q" } }]
    end
    packed = keys.map { |key| MP.pack({ key => 1 }) }
    [keys, keys.shuffle(random: Random.new(1))].each do
      assert_equal(keys, packed.map { |one| unpacked_keys(one).first })
      assert_equal(keys.map(&:to_sym), packed.map { |one| unpacked_keys(one, symbolize_keys: true).first })
    end
  end

  def test_keys_are_utf_8_and_frozen_and_the_same_object_each_time
    ["a", "é", "long " * 20].each do |text|
      first, second = Array.new(2) { unpacked_keys(MP.pack({ text => 1 })).first }
      assert_same first, second
      assert_equal [text, Encoding::UTF_8, true], [first, first.encoding, first.frozen?]
    end
  end

  # Like Ruby's frozen literals, even if the same key was unpacked unfrozen before.
  def test_keys_that_are_frozen_are_the_same_object_as_equal_strings
    packed = MP.pack([{ "a key and a value" => 1 }, "a key and a value"])
    MP.unpack(packed)
    2.times do
      map, value = MP.unpack(packed, freeze: true)
      assert_same value, map.keys[0]
      assert_same(-"a key and a value", value)
    end
  end

  def test_a_key_seen_again_is_rubys_interned_string
    packed = MP.pack({ "a key that comes again" => 1 })
    others = MP.pack(Array.new(5_000) { |i| ["another key #{i}", i] }.to_h) # they replace it in the cache
    found = Array.new(2) { MP.unpack(packed).keys[0].tap { MP.unpack(others) } }
    refute_same(-"a key that comes again", found[0])
    assert_same(-"a key that comes again", found[1])
  end

  def test_the_same_key_is_a_string_or_a_symbol_as_requested
    packed = MP.pack({ "name" => 1 })
    3.times do
      assert_equal ["name"], unpacked_keys(packed)
      assert_equal [:name], unpacked_keys(packed, symbolize_keys: true)
    end
  end

  def test_cached_keys_survive_a_collection
    packed = Array.new(100) { |i| MP.pack({ "a key #{i}" => 1 }) }
    identities = -> { packed.map { |one| unpacked_keys(one).first.object_id } } # ids that no other object ever gets
    before = aside(&identities)
    replace_garbage
    after = identities.call
    assert_operator (before & after).size, :>, 80 # some keys share a cache slot
  end

  def test_cached_keys_do_not_move
    documents = Array.new(100) { |i| { "a moved key #{i}" => i } }
    packed = documents.map { |document| MP.pack(document) }
    aside { packed.each { |one| MP.unpack(one) } }
    move_everything
    assert_equal(documents, packed.map { |one| MP.unpack(one) })
  end

  def test_more_keys_than_the_cache_holds_are_read_correctly
    document = Array.new(5_000) { |i| ["key #{i}", i] }.to_h
    packed = MP.pack(document)
    2.times { assert_equal document, MP.unpack(packed) }
    assert_equal document.transform_keys(&:to_sym), MP.unpack(packed, symbolize_keys: true)
  end
end
