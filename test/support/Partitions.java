import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/** For each key, a line of hex on stdin: Kafka's own hash of it, and its partition for each number of partitions given. */
class Partitions {
    public static void main(String[] counts) {
        Scanner keys = new Scanner(System.in);
        while (keys.hasNextLine()) {
            byte[] key = HexFormat.of().parseHex(keys.nextLine());
            StringBuilder line = new StringBuilder().append(Utils.murmur2(key));
            for (String count : counts)
                line.append(' ').append(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(count)));
            System.out.println(line);
        }
    }
}
